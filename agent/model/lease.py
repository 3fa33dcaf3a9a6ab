"""The leases that an admitter has told this agent of (docs/decisions/0004-agents-keep-leases.md).

Values only: the agent decides nothing from them. It keeps them, over its own restarts too, and tells them to every admitter
that asks, since where no pod exists yet nobody else remembers. Field names are those of proto/muster/v1/feed.proto.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """Units of a resource of this node, held for one podset of a gang."""

    id: str
    gang: str
    """namespace/name"""
    resource: str
    units: int
    pod_uids: tuple[str, ...] = ()
    request_id: str = ""
    podset: str = ""
    units_per_pod: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeldLeases:
    """All of them, and the term of who told them; 0: nobody has yet."""

    term: int = 0
    leases: tuple[HeldLease, ...] = ()
