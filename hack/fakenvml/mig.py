"""MIG tables of real products, and instances laid out by them.

In: a product's name, or a state and wanted placements. Out: MigProfile rows with the driver's own ids, and a State.

The numbers are those of topology.md section 3, which took them from captures; a shape that nobody captured on a product
(3g and up on GB200) is left out of its table, not guessed. Where captures differ by driver the smaller size is here.
"""

import dataclasses
import uuid as uuid_module
from collections.abc import Iterable

from hack.fakenvml.state import MigInstance, State


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A row of a product's MIG table."""

    id: int
    """Not NVML_GPU_INSTANCE_PROFILE_*: that is another number."""
    name: str
    slices: int
    instances: int
    """At most."""
    sm: int
    memory_mib: int
    starts: tuple[int, ...]
    size: int
    """Memory slices."""


# id, slices, most instances, starts, memory slices
SHAPES = (
    (19, 1, 7, (0, 1, 2, 3, 4, 5, 6), 1),
    (20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    (15, 1, 4, (0, 2, 4, 6), 2),
    (14, 2, 3, (0, 2, 4), 2),
    (9, 3, 2, (0, 4), 4),
    (5, 4, 1, (0,), 4),
    (0, 7, 1, (0,), 8),
)

# By profile id: name, SMs, MiB
PRODUCTS: dict[str, dict[int, tuple[str, int, int]]] = {
    "NVIDIA A100-PCIE-40GB": {
        19: ("1g.5gb", 14, 4864), 20: ("1g.5gb+me", 14, 4864), 15: ("1g.10gb", 14, 9856), 14: ("2g.10gb", 28, 9856),
        9: ("3g.20gb", 42, 19968), 5: ("4g.20gb", 56, 19968), 0: ("7g.40gb", 98, 40192),
    },
    "NVIDIA A100-SXM4-80GB": {
        19: ("1g.10gb", 14, 9728), 20: ("1g.10gb+me", 14, 9728), 15: ("1g.20gb", 14, 19968), 14: ("2g.20gb", 28, 19968),
        9: ("3g.40gb", 42, 40192), 5: ("4g.40gb", 56, 40192), 0: ("7g.80gb", 98, 80384),
    },
    "NVIDIA H100 80GB HBM3": {
        19: ("1g.10gb", 16, 9984), 20: ("1g.10gb+me", 16, 9984), 15: ("1g.20gb", 26, 20096), 14: ("2g.20gb", 32, 20096),
        9: ("3g.40gb", 60, 40448), 5: ("4g.40gb", 64, 40448), 0: ("7g.80gb", 132, 81152),
    },
    "NVIDIA GB200": {
        19: ("1g.23gb", 18, 20480), 20: ("1g.23gb+me", 18, 20480), 15: ("1g.47gb", 32, 46592), 14: ("2g.47gb", 38, 46592),
    },
}  # fmt: skip


def table(product: str) -> tuple[MigProfile, ...]:
    """Return the profiles of a product that has MIG."""
    sizes = PRODUCTS[product]
    rows = []
    for id_, slices, instances, starts, size in SHAPES:
        if id_ in sizes:
            name, sm, memory_mib = sizes[id_]
            row = MigProfile(
                id=id_,
                name=name,
                slices=slices,
                instances=instances,
                sm=sm,
                memory_mib=memory_mib,
                starts=starts,
                size=size,
            )
            rows.append(row)
    return tuple(rows)


def with_mode(state: State, gpu: int, *, current: bool, pending: bool | None = None) -> State:
    """Set the mode; instances go when it is off."""
    kept = state.gpus[gpu].mig if current else ()
    wanted = current if pending is None else pending
    return state.with_gpu(gpu, mig_current=int(current), mig_pending=int(wanted), mig=kept)


def with_instances(state: State, gpu: int, layout: Iterable[tuple[str, int]], *, round_: int = 0) -> State:
    """Turn MIG on with `(profile name, start)` instances: slots from 0, a new `round_` gives new UUIDs.

    Raises ValueError where the table has no such placement or two overlap.
    """
    profiles = {profile.name: profile for profile in table(state.gpus[gpu].name)}
    instances: list[MigInstance] = []
    taken: set[int] = set()
    for slot, (name, start) in enumerate(layout):
        profile = profiles[name]
        slices = set(range(start, start + profile.size))
        if start not in profile.starts or slices & taken:
            raise ValueError(f"{name} at {start}: no such placement, or it overlaps another")
        taken |= slices
        instances.append(_instance(state.gpus[gpu].uuid, slot, profile, start, round_))
    changed = with_mode(state, gpu, current=True)
    return changed.with_gpu(gpu, mig=tuple(instances))


def without_instance(state: State, gpu: int, slot: int) -> State:
    """Destroy one instance: its slot becomes a hole."""
    return state.with_gpu(gpu, mig=tuple(instance for instance in state.gpus[gpu].mig if instance.slot != slot))


def _instance(parent: str, slot: int, profile: MigProfile, start: int, round_: int) -> MigInstance:
    identity = uuid_module.uuid5(uuid_module.NAMESPACE_OID, f"{parent}/{profile.name}/{start}/{round_}")
    return MigInstance(
        slot=slot,
        uuid=f"MIG-{identity}",
        # Drivers number 7g 0, 3g/4g 1 and 2, 2g from 3, 1g from 7: never the slot, so nobody can mix the two up.
        gi={8: 0, 4: 1, 2: 3, 1: 7}[profile.size] + start // profile.size,
        profile=profile.id,
        name=profile.name,
        start=start,
        size=profile.size,
        compute_slices=profile.slices,
        gpu_slices=profile.slices,
        sm=profile.sm,
        memory_mib=profile.memory_mib,
    )
