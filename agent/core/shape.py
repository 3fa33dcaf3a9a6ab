"""Which unit has the shape that a resource name promises.

Input: a resource name, a unit, the plugin's MIG strategy. Output: yes or no.

Invariant: a whole GPU in MIG mode fits no name, since a pod cannot use it as one.

Why the gigabyte figure is tolerated by one: components round the same memory differently (faults.md C9). Why no table
of profiles: names vary by product (faults.md C10), so they come from NVML.
"""

import re

from agent.model import planes
from agent.model.snapshot import Unit
from muster.model.reading import Known, Unknown

PREFIX = "nvidia.com/"
WHOLE = PREFIX + "gpu"
_MIG = PREFIX + "mig-"
_PROFILE = re.compile(r"^(?P<head>(?:\d+c\.)?\d+g)\.(?P<gigabytes>\d{1,6})gb(?P<tail>.*)$")


def profile_of(name: str) -> str:
    """Return the profile in a resource name; empty if the name promises none.

    >>> profile_of("nvidia.com/mig-1g.10gb.shared"), profile_of("nvidia.com/gpu")
    ('1g.10gb', '')
    """
    return name.removeprefix(_MIG).removesuffix(".shared") if name.startswith(_MIG) else ""


def spelled(profile: str) -> str:
    """Return NVML's profile name as the plugin spells it (faults.md S18).

    >>> spelled("1g.10gb+me")
    '1g.10gb.me'
    """
    return profile.replace("+", ".")


def is_same_profile(one: str, other: str) -> bool:
    """True if two names mean the same profile.

    >>> is_same_profile("7g.79gb", "7g.80gb"), is_same_profile("1g.10gb", "1g.10gb.me")
    (True, False)
    """
    if one == other:
        return True
    first, second = _PROFILE.match(one), _PROFILE.match(other)
    if first is None or second is None:
        return False
    near = abs(int(first["gigabytes"]) - int(second["gigabytes"])) <= 1
    return near and (first["head"], first["tail"]) == (second["head"], second["tail"])


def is_in_mig_mode(gpu: planes.Gpu) -> bool:
    """True if the driver says that MIG mode is on now."""
    match gpu.mig:
        case Known(mig):
            return mig.current
        case Unknown():
            return False


def fits(name: str, unit: Unit) -> bool:
    """True if a unit that the resource advertises has the shape its name promises."""
    profile = profile_of(name)
    if profile:
        return unit.is_mig and is_same_profile(profile, unit.profile)
    return unit.is_mig or not is_in_mig_mode(unit.gpu)


def would_carry(name: str, unit: Unit, strategy: str) -> bool:
    """True if the plugin would offer the unit under this name."""
    if unit.is_mig:
        return fits(name, unit) if profile_of(name) else is_whole(name) and strategy == "single"
    return is_whole(name) and not is_in_mig_mode(unit.gpu)


def unshared(name: str) -> str:
    """Return the name without the suffix under which its replicas are renamed (faults.md F1, F2).

    >>> unshared("nvidia.com/gpu.shared")
    'nvidia.com/gpu'
    """
    return name.removesuffix(".shared")


def is_whole(name: str) -> bool:
    """True for the names under which whole GPUs are offered."""
    return name in (WHOLE, WHOLE + ".shared")
