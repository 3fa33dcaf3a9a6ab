"""The fabric registration of one GPU.

Input: the driver's structure in whichever of its three versions it has. Output: planes.Fabric.

Invariant: status, cluster, clique and health are read only where they mean something: a registration that is not
completed has none of them. In the health mask's fields 0 means not supported, so none is tested for truth
(topology.md section 1.2).
"""

import types
from collections.abc import Callable, Mapping
from typing import Any

from agent.core import nvml_codes
from agent.model import planes
from agent.reader import nvml
from muster.model import codec
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

STATES: Mapping[int, planes.FabricState] = types.MappingProxyType(
    {
        0: planes.FabricState.NOT_SUPPORTED,
        1: planes.FabricState.NOT_STARTED,
        2: planes.FabricState.IN_PROGRESS,
        3: planes.FabricState.COMPLETED,
    }
)
SUMMARIES: Mapping[int, planes.FabricSummary] = types.MappingProxyType(
    {
        0: planes.FabricSummary.NOT_SUPPORTED,
        1: planes.FabricSummary.HEALTHY,
        2: planes.FabricSummary.UNHEALTHY,
        3: planes.FabricSummary.LIMITED_CAPACITY,
    }
)
_TRISTATE = ("not_supported", "true", "false")
_CONFIGURATION = (
    "not_supported",
    "none",
    "incorrect_sysguid",
    "incorrect_chassis_sn",
    "no_partition",
    "insufficient_nvlinks",
    "incompatible_gpu_fw",
    "invalid_location",
    "gpu_state_invalid",
)
_HEALTH = (
    ("degraded_bandwidth", 0, 2, _TRISTATE),
    ("route_recovery", 2, 2, _TRISTATE),
    ("route_unhealthy", 4, 2, _TRISTATE),
    ("access_timeout_recovery", 6, 2, _TRISTATE),
    ("incorrect_configuration", 8, 4, _CONFIGURATION),
    ("partition_assigned", 12, 2, _TRISTATE),
    ("fabric_manager_link", 14, 2, ("not_supported", "connected", "disconnected")),
)
"""Field, shift, width and words."""


def read(device: nvml.Handle) -> Reading[planes.Fabric]:
    """Return the registration by the newest form of the call that the driver has."""
    try:
        return _fabric(nvml.first_known(*(_form(device, version) for version in (3, 2, 1))))
    except nvml.NvmlError as error:
        if error.reason == nvml_codes.NOT_SUPPORTED:
            return Known(planes.Fabric(state=planes.FabricState.NOT_SUPPORTED))
        return Unknown(error.reason, error.call)


def _form(device: nvml.Handle, version: int) -> Callable[[], Any]:
    return lambda: nvml.fabric_info(device, version)


def _fabric(info: Any) -> Reading[planes.Fabric]:
    state = STATES.get(int(info.state))
    if state is None:
        return Unknown("UnknownEnumValue", f"fabric state {int(info.state)}")
    if state is not planes.FabricState.COMPLETED:
        return Known(planes.Fabric(state=state))
    status = int(info.status)
    mask = getattr(info, "healthMask", None)
    return Known(
        planes.Fabric(
            state=state,
            status=Known("success" if status == 0 else nvml_codes.reason(status)),
            cluster_uuid=Known(_dashed(bytes(info.clusterUuid).hex())),
            clique=Known(int(info.cliqueId)),
            summary=_summary(getattr(info, "healthSummary", None)),
            health=codec.EMPTY if mask is None else health(int(mask)),
        )
    )


def _summary(number: int | None) -> Reading[planes.FabricSummary]:
    if number is None:  # An older driver's structure ends before it.
        return NOT_COLLECTED
    if number not in SUMMARIES:
        return Unknown("UnknownEnumValue", f"fabric summary {number}")
    return Known(SUMMARIES[number])


def health(mask: int) -> Mapping[str, str]:
    """Return the fields of a health mask in words.

    >>> health(0x1006)["degraded_bandwidth"], health(0x1006)["route_recovery"], health(0x1006)["partition_assigned"]
    ('false', 'true', 'true')
    """
    words = {}
    for field, shift, width, meanings in _HEALTH:
        number = mask >> shift & ((1 << width) - 1)
        words[field] = meanings[number] if number < len(meanings) else str(number)
    return codec.freeze(words)


def _dashed(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
