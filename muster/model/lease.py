"""What a node is told of the leases on its resources, and gives back to the next leader (docs/decisions/0004-agents-keep-leases.md).

Values only, and both sides of the feed have the same: the admitter makes them, the agent decides nothing from them. It keeps them, over its
own restarts too, and tells them to every admitter that asks, since where no pod exists yet nobody else remembers. Field names
are those of proto/muster/v1/feed.proto.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeLease:
    """One node's part of a gang's lease: units of a resource, held for one podset."""

    id: str
    gang: str
    """namespace/name"""
    resource: str
    units: int
    pod_uids: tuple[str, ...] = ()
    """Members that have appeared on this node so far."""
    request_id: str = ""
    podset: str = ""
    units_per_pod: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSet:
    """All leases of one node, whole, and the term of who told them; 0: nobody has yet."""

    term: int = 0
    leases: tuple[NodeLease, ...] = ()
