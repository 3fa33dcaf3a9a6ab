"""The traps of topology.md section 1.1: each is handled in nvml.py or cannot be stepped into from there."""

import ctypes
import inspect
import pathlib

import pynvml
import pytest

from agent.reader import nvml
from muster.model.reading import Known, Unknown

AVOIDED = {
    "NVML_P2P_CAPS_INDEX_READ": "is the tuple (0,)",
    "NVML_GRID_LICENSE_EXPIRY_": "are tuples too",
    "nvmlDeviceGetModuleId": "shares one default buffer between all threads",
    "nvmlDeviceIsMigDeviceHandle": "returns a c_uint, which never equals a number",
    "nvmlDeviceGetNvLinkInfo": "is about encryption and firmware, not links",
    "nvmlDeviceGetPlatformInfo": "its byte arrays end at the first zero",
    "NVML_NVLINK_MAX_LINKS": "probes absent links",
    "nvmlEventSetWait_v3": "older drivers lack it, and _v2 is in all of them",
    "nvmlEventTypeAll": "one unsupported bit refuses the whole registration",
    "FanSpeed": "fans are never asked",
}


@pytest.mark.parametrize("name", sorted(AVOIDED))
def test_a_trapped_name_is_not_used(name):
    code = "\n".join(line.partition("#")[0] for line in inspect.getsource(nvml).splitlines())
    assert name not in code, AVOIDED[name]


def test_nothing_but_nvml_imports_the_binding():
    sources = pathlib.Path(inspect.getfile(nvml)).parent.glob("*.py")
    assert [path.name for path in sources if "import pynvml" in path.read_text()] == ["nvml.py"]


def _raises(code):
    def call():
        raise pynvml.NVMLError(code)

    return call


@pytest.mark.parametrize(("code", "reason"), [(15, "GPU_IS_LOST"), (4, "NO_PERMISSION"), (4711, "UNKNOWN")])
def test_an_error_keeps_its_name(code, reason):
    found = nvml.reading(lambda: nvml._ask(_raises(code)))
    assert found == Unknown(reason, "call")


def test_an_older_form_is_asked_only_where_the_driver_is_older():
    asked = []

    def form(name, code=None):
        def call():
            asked.append(name)
            if code is not None:
                nvml._ask(_raises(code))
            return name

        return call

    assert nvml.first_known(form("v3", 25), form("v2", 13), form("v1")) == "v1"
    assert asked == ["v3", "v2", "v1"]
    asked.clear()
    assert nvml.reading(lambda: nvml.first_known(form("v3", 3), form("v2"))) == Unknown("NOT_SUPPORTED", "call")
    assert asked == ["v3"]


def test_every_value_type_of_a_field_is_read():
    cases = {
        0: ("dVal", 3.0),
        1: ("uiVal", 3),
        2: ("ulVal", 3),
        3: ("ullVal", 3),
        4: ("sllVal", -3),
        5: ("siVal", -3),
        6: ("usVal", 3),
    }
    for kind, (member, number) in cases.items():
        field = pynvml.c_nvmlFieldValue_t()
        field.valueType = kind
        setattr(field.value, member, number)
        assert nvml._field(field) == Known(int(number))


def test_a_field_has_a_code_of_its_own():
    field = pynvml.c_nvmlFieldValue_t()
    field.fieldId, field.nvmlReturn = 230, pynvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml._field(field) == Unknown("NOT_SUPPORTED", "field 230")
    field.nvmlReturn, field.valueType = 0, 99
    assert nvml._field(field).reason == "UnknownValueType"


def test_the_whole_gpu_is_no_instance():
    assert nvml.instance_id(ctypes.c_uint(-1).value) is None
    assert nvml.instance_id(0) == 0


def test_a_library_that_is_none(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    with pytest.raises(nvml.NvmlError) as raised:
        nvml.load(tmp_path / "libnvidia-ml.so.1")
    assert raised.value.reason == "LIBRARY_NOT_FOUND"
