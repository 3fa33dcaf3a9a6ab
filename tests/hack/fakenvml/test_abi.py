"""The library's boundary: struct layouts, names, exports, and the traps of the binding (topology.md section 1.1)."""

import ast
import ctypes
import pathlib
import re
import subprocess

import pynvml
import pytest

from hack import fakenvml
from hack.fakenvml import statechecks

ROOT = pathlib.Path(__file__).parents[3]
READER = ROOT / "agent/reader"

BINDING_CLASSES = {
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlDeviceAttributes_t": pynvml.c_nvmlDeviceAttributes,
    "nvmlGpuInstancePlacement_t": pynvml.c_nvmlGpuInstancePlacement_t,
    "nvmlGpuInstanceInfo_t": pynvml.c_nvmlGpuInstanceInfo_t,
    "nvmlValue_t": pynvml.c_nvmlValue_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlEccSramErrorStatus_t": pynvml.c_nvmlEccSramErrorStatus_v1_t,
    "nvmlGpuFabricInfo_t": pynvml.c_nvmlGpuFabricInfo_t,
    "nvmlGpuFabricInfo_v2_t": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "nvmlGpuFabricInfo_v3_t": pynvml.c_nvmlGpuFabricInfo_v3_t,
    "nvmlTemperature_t": pynvml.c_nvmlTemperature_v1_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v3_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
    "nvmlGridLicenseExpiry_t": pynvml.c_nvmlGridLicenseExpiry_t,
    "nvmlGridLicensableFeature_t": pynvml.c_nvmlGridLicensableFeature_v4_t,
    "nvmlGridLicensableFeatures_t": pynvml.c_nvmlGridLicensableFeatures_v4_t,
}


@pytest.fixture(scope="module")
def library():
    return fakenvml.build()


def exports(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def test_every_struct_has_the_size_of_the_bindings_class(library):
    sizeof = ctypes.CDLL(str(library)).fakenvml_sizeof
    sizeof.argtypes, sizeof.restype = [ctypes.c_char_p], ctypes.c_ulong
    sizes = {name: sizeof(name.encode()) for name in BINDING_CLASSES}
    assert sizes == {name: ctypes.sizeof(class_) for name, class_ in BINDING_CLASSES.items()}


def test_every_struct_of_the_header_is_compared():
    header = (ROOT / "hack/fakenvml/nvml_types.h").read_text()
    assert set(re.findall(r"^} (\w+);", header, re.MULTILINE)) == set(BINDING_CLASSES)


def test_a_type_that_the_library_does_not_know_has_no_size(library):
    sizeof = ctypes.CDLL(str(library)).fakenvml_sizeof
    sizeof.argtypes, sizeof.restype = [ctypes.c_char_p], ctypes.c_ulong
    assert sizeof(b"nvmlNothing_t") == 0


def test_the_soname_is_the_one_that_the_binding_opens(library):
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "[libnvidia-ml.so.1]" in dynamic


def test_exports_are_the_functions_that_a_fault_may_name(library):
    assert exports(library) - {"fakenvml_sizeof"} == statechecks.FUNCTIONS


def names_used(tree):
    """Attributes of pynvml that the source mentions."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pynvml"
    }


def symbols_of(functions, name):
    """The C symbols that a function of the binding looks up, itself or by another function of the binding."""
    found = set()
    for node in ast.walk(functions[name]):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id == "_nvmlGetFunctionPointer":
            found.add(node.args[0].value)
        elif node.func.id in functions and node.func.id.startswith("nvml"):
            found |= symbols_of(functions, node.func.id)
    return found


def test_exports_are_what_the_reader_calls(library):
    """Neither more, which nobody would notice rotting, nor less."""
    tree = ast.parse(pathlib.Path(pynvml.__file__).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    used = set().union(*(names_used(ast.parse(path.read_text())) for path in READER.glob("*.py")))
    called = set().union(*(symbols_of(functions, name) for name in used & set(functions)))
    assert exports(library) - {"fakenvml_sizeof"} == called


def test_building_again_leaves_a_fresh_library_alone(library):
    before = library.stat().st_mtime_ns
    assert fakenvml.build().stat().st_mtime_ns == before


def test_a_missing_library_is_what_the_binding_says(start):
    child = start(init=False, environment={"LD_LIBRARY_PATH": "/nonexistent"})
    assert child.code("n.nvmlInit()") == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND


def test_a_function_that_is_not_exported_is_function_not_found(path, start):
    fakenvml.write(fakenvml.profile("t4"), path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0)")
    assert child.code("n.nvmlDeviceGetFanSpeed(h)") == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_before_init_everything_is_uninitialized(path, start):
    fakenvml.write(fakenvml.profile("t4"), path)
    child = start(init=False)
    child("n._LoadNvmlLibrary()")
    assert child.code("n.nvmlDeviceGetCount()") == pynvml.NVML_ERROR_UNINITIALIZED
    assert child.code("n.nvmlShutdown()") == pynvml.NVML_ERROR_UNINITIALIZED


def test_inits_are_counted(path, start):
    fakenvml.write(fakenvml.profile("t4"), path)
    child = start()
    child("n.nvmlInit()")
    child("n.nvmlShutdown()")
    assert child("n.nvmlDeviceGetCount()") == 4
    child("n.nvmlShutdown()")
    assert child.code("n.nvmlDeviceGetCount()") == pynvml.NVML_ERROR_UNINITIALIZED


def test_a_handle_that_is_none_is_an_invalid_argument(path, start):
    fakenvml.write(fakenvml.profile("t4"), path)
    child = start()
    assert child.code("n.nvmlDeviceGetUUID(None)") == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert child.code("n.nvmlDeviceGetUUID(ctypes.c_void_p(12345))") == pynvml.NVML_ERROR_INVALID_ARGUMENT
