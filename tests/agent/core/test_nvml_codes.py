"""NVML's numbers have names, all of them."""

import pynvml
from hypothesis import given
from hypothesis import strategies as st

from agent.core import nvml_codes


def _binding(prefix):
    return {name.removeprefix(prefix): getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix)}


def test_every_return_code_of_the_binding_has_its_name():
    assert {code: name for name, code in _binding("NVML_ERROR_").items()} == dict(nvml_codes.CODES)


@given(st.integers())
def test_no_code_is_without_a_reason(code):
    assert nvml_codes.reason(code) == nvml_codes.CODES.get(code, "UNKNOWN")
    assert nvml_codes.reason(code) != ""


def test_named_reasons_are_names_of_codes():
    names = set(nvml_codes.CODES.values())
    assert {nvml_codes.TIMEOUT, nvml_codes.NOT_SUPPORTED, nvml_codes.GPU_IS_LOST, nvml_codes.NOT_FOUND} <= names
    assert names >= nvml_codes.OLDER_DRIVER | nvml_codes.WHOLE_DEVICE | nvml_codes.DRIVER_GONE


def test_every_clock_reason_of_the_binding_has_a_name():
    bits = {bit for bit in _binding("nvmlClocksEventReason").values() if bit and bit & (bit - 1) == 0}
    assert bits == set(nvml_codes.CLOCKS_REASONS)


def test_every_event_of_the_binding_is_named_or_left_out_on_purpose():
    kinds = {bit for bit in _binding("nvmlEventType").values() if bit and bit & (bit - 1) == 0}
    left_out = {pynvml.nvmlEventTypePState, pynvml.nvmlEventTypeClock, pynvml.nvmlEventTypePowerSourceChange}
    assert kinds | {pynvml.nvmlEventMigConfigChange} == set(nvml_codes.EVENTS) | left_out
