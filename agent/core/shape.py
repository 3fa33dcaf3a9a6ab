"""Which unit has the shape that a resource name promises.

Input: a resource name, a unit, the plugin's MIG strategy. Output: yes or no.

Invariant: a whole GPU in MIG mode fits no name, since a pod cannot use it as one.

Why the gigabyte figure is tolerated by one: components round the same memory differently (faults.md C9). Why slices and
attributes come from the driver's numbers where it gives them: its spelling of a profile is only another component's. Why no
table of profiles: names vary by product (faults.md C10), so they come from NVML.
"""

import dataclasses
import re

from agent.model import planes
from agent.model.snapshot import Unit
from muster.model.reading import Known, Unknown

PREFIX = "nvidia.com/"
WHOLE = PREFIX + "gpu"
_MIG = PREFIX + "mig-"
_PROFILE = re.compile(r"^(?:(?P<compute>\d{1,3})c\.)?(?P<gpu>\d{1,3})g\.(?P<gigabytes>\d{1,6})gb(?P<tail>.*)$")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a profile is, whatever it is called."""

    gpu: int
    """Compute slices of the GPU instance."""
    compute: int
    """Compute slices of the compute instance: fewer, if others share the GPU instance."""
    gigabytes: int
    attributes: frozenset[str]


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


def slice_in(profile: str) -> Slice | None:
    """Return what a profile's name says; None for a name of another form.

    >>> found = slice_in("1c.3g.20gb.me")
    >>> found.compute, found.gpu, found.gigabytes, sorted(found.attributes)
    (1, 3, 20, ['me'])
    """
    match = _PROFILE.match(spelled(profile))
    if match is None:
        return None
    gpu = int(match["gpu"])
    tail = match["tail"].lstrip(".")
    return Slice(
        gpu=gpu,
        compute=int(match["compute"] or gpu),
        gigabytes=int(match["gigabytes"]),
        attributes=frozenset({tail} if tail else ()),
    )


def slice_of(instance: planes.MigInstance) -> Slice | None:
    """Return what the driver says that an instance is: its numbers, and the name's where there are none."""
    named = slice_in(instance.profile)
    match instance.gpu_slices, instance.compute_slices, instance.memory_bytes:
        case Known(gpu), Known(compute), Known(size) if named is None:
            gigabytes = round(size / (1 << 30))
        case Known(gpu), Known(compute), _ if named is not None:
            gigabytes = named.gigabytes
        case _:
            return named
    attributes = frozenset(text.lstrip("+.") for text in instance.attributes)
    return Slice(
        gpu=gpu,
        compute=compute,
        gigabytes=gigabytes,
        attributes=attributes or (named.attributes if named is not None else frozenset()),
    )


def is_same(one: Slice | None, other: Slice | None) -> bool:
    """True if both are known and equal, the gigabytes within one."""
    if one is None or other is None:
        return False
    near = abs(one.gigabytes - other.gigabytes) <= 1
    return near and dataclasses.replace(one, gigabytes=other.gigabytes) == other


def is_of_profile(profile: str, instance: planes.MigInstance) -> bool:
    """True if the instance is what the profile's name says, whatever its own component calls it."""
    wanted, theirs = slice_in(profile), slice_of(instance)
    if wanted is None or theirs is None:
        return spelled(profile) == spelled(instance.profile)
    return is_same(wanted, theirs)


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
        return unit.instance is not None and is_of_profile(profile, unit.instance)
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
