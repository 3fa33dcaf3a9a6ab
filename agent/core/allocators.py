"""Who allocates on this node: a device plugin, a DRA driver, both, or a plugin that gives whole cards to VMs.

Input: plugins, DRA plane, resource views. Output: the set of allocators, found before any rule asks why something is absent.

Invariant: an allocator is there only if a plane shows it: its process, its socket, its promise. Nobody is missed on a node
where nobody expects him: rules about an absent plugin ask here first (faults.md S21).
"""

import enum

from agent.model.policy import Policy
from agent.model.snapshot import Snapshot


class Allocator(enum.Enum):
    """Who gives GPUs to pods."""

    DEVICE_PLUGIN = enum.auto()
    DRA = enum.auto()
    EXTENDED_RESOURCE = enum.auto()
    """DRA, asked by pods in the name of an extended resource."""
    PASSTHROUGH = enum.auto()


def of(snapshot: Snapshot, policy: Policy) -> frozenset[Allocator]:
    """Return who allocates GPUs on the node, as far as the planes show."""
    found: set[Allocator] = set()
    views = [view for view in snapshot.resources if view.ids()]
    if snapshot.plugins or any(not view.is_dra for view in views):
        found.add(Allocator.DEVICE_PLUGIN)
    if any(device.is_passthrough for view in views for device in view.ids()):
        found.add(Allocator.PASSTHROUGH)
    if any(view.is_dra for view in views) or _has_driver(snapshot, policy):
        found.add(Allocator.DRA)
    if Allocator.DRA in found and any(item.extended_resource for item in snapshot.dra.device_classes):
        found.add(Allocator.EXTENDED_RESOURCE)
    return frozenset(found)


def _has_driver(snapshot: Snapshot, policy: Policy) -> bool:
    return any(item.name in policy.dra_drivers for item in snapshot.dra.drivers)


def is_dra_alone(snapshot: Snapshot, policy: Policy) -> bool:
    """True if only DRA allocates here: then no device plugin is missing."""
    found = of(snapshot, policy)
    return Allocator.DRA in found and Allocator.DEVICE_PLUGIN not in found
