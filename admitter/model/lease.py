"""Leases: n units of (node, resource) held for one podset of a gang.

Values only. A lease is on a resource's units; the devices in a forecast are replaced by what the agent sees. A gang has
one `Lease`; what one node is told of it, and gives back to the next leader, is a `NodeLease` (muster/model/lease.py).
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Pods of one podset on one node, on one resource."""

    podset: str
    node: str
    resource: str
    pods: int
    units_per_pod: int
    forecast: tuple[str, ...] = ()
    """Ids that were free when it was placed."""
    pin: tuple[str, ...] = ()
    """Nodes that its pods are pinned to where they ask for something that placement does not model; empty: `node` alone."""

    @property
    def units(self) -> int:
        """Units in all."""
        return self.pods * self.units_per_pod


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """All units held for one gang, taken from one version of the cluster view."""

    id: str
    term: int
    snapshot_version: int
    placements: tuple[Placement, ...]
