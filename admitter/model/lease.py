"""Leases: n units of (node, resource) held for one podset of a gang.

Values only. A lease is on a resource's units; the devices in a forecast are replaced by what the agent sees.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeLease:
    """One node's part of a gang's lease. Field names are those of proto/muster/v1/feed.proto."""

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
