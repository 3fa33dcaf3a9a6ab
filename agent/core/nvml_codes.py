"""What NVML's numbers are called: return codes, and the bits of events and of clock reasons.

Input: a number. Output: the reason that a reading or a GPU's `error` carries, as NVML names it.

Invariant: total. Every code that the binding knows has a row (a test compares the two); one that nobody knows is
UNKNOWN, never a success and never a default of healthy.

Not here: what a reason does to a device (core/rules), and who asks (reader/).
"""

import types
from collections.abc import Mapping

CODES: Mapping[int, str] = types.MappingProxyType(
    {
        1: "UNINITIALIZED",
        2: "INVALID_ARGUMENT",
        3: "NOT_SUPPORTED",
        4: "NO_PERMISSION",
        5: "ALREADY_INITIALIZED",
        6: "NOT_FOUND",
        7: "INSUFFICIENT_SIZE",
        8: "INSUFFICIENT_POWER",
        9: "DRIVER_NOT_LOADED",
        10: "TIMEOUT",
        11: "IRQ_ISSUE",
        12: "LIBRARY_NOT_FOUND",
        13: "FUNCTION_NOT_FOUND",
        14: "CORRUPTED_INFOROM",
        15: "GPU_IS_LOST",
        16: "RESET_REQUIRED",
        17: "OPERATING_SYSTEM",
        18: "LIB_RM_VERSION_MISMATCH",
        19: "IN_USE",
        20: "MEMORY",
        21: "NO_DATA",
        22: "VGPU_ECC_NOT_SUPPORTED",
        23: "INSUFFICIENT_RESOURCES",
        24: "FREQ_NOT_SUPPORTED",
        25: "ARGUMENT_VERSION_MISMATCH",
        26: "DEPRECATED",
        27: "NOT_READY",
        28: "GPU_NOT_FOUND",
        29: "INVALID_STATE",
        30: "RESET_TYPE_NOT_SUPPORTED",
        999: "UNKNOWN",
    }
)

LIBRARY_NOT_FOUND = "LIBRARY_NOT_FOUND"
TIMEOUT = "TIMEOUT"
NOT_SUPPORTED = "NOT_SUPPORTED"
FUNCTION_NOT_FOUND = "FUNCTION_NOT_FOUND"
NOT_FOUND = "NOT_FOUND"
INSUFFICIENT_SIZE = "INSUFFICIENT_SIZE"
GPU_IS_LOST = "GPU_IS_LOST"

MAINTENANCE = "MAINTENANCE"
"""Not NVML's: we closed the session ourselves (design.md section 8)."""

OLDER_DRIVER = frozenset({FUNCTION_NOT_FOUND, "ARGUMENT_VERSION_MISMATCH"})
"""The binding is newer than the driver: ask the older form of the call (topology.md section 1.1)."""

WHOLE_DEVICE = frozenset({GPU_IS_LOST, "RESET_REQUIRED", "GPU_NOT_FOUND"})
"""Speaks of the GPU and not of the fact asked for, whichever call returned it."""

DRIVER_GONE = frozenset({"DRIVER_NOT_LOADED", "UNINITIALIZED"})
"""In a session that was open: the driver went away under it."""


CLOCKS_REASONS: Mapping[int, str] = types.MappingProxyType(
    {
        0x1: "gpu_idle",
        0x2: "applications_clocks_setting",
        0x4: "sw_power_cap",
        0x8: "hw_slowdown",
        0x10: "sync_boost",
        0x20: "sw_thermal_slowdown",
        0x40: "hw_thermal_slowdown",
        0x80: "hw_power_brake_slowdown",
        0x100: "display_clock_setting",
    }
)
EVENTS: Mapping[int, str] = types.MappingProxyType(
    {
        0x1: "ecc_single",
        0x2: "ecc_double",
        0x8: "xid",
        0x100: "mig_config",
        0x200: "ecc_single_storm",
        0x400: "page_retirement",
        0x800: "page_retirement_failure",
        0x1000: "poison_nonfatal",
        0x2000: "poison_fatal",
        0x4000: "gpu_unavailable",
        0x8000: "recovery_action",
    }
)
"""topology.md section 1.3; P-state, clock and power-source changes are left out: they are noise here."""


def reason(code: int) -> str:
    """Return the name of a return code.

    >>> reason(15), reason(4711)
    ('GPU_IS_LOST', 'UNKNOWN')
    """
    return CODES.get(code, "UNKNOWN")
