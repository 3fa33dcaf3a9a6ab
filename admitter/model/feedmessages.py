"""What an agent says on the feed, as values. Field names are those of proto/muster/v1/feed.proto.

The Delta is in muster.model.delta, since both sides speak it.
"""

import dataclasses
from collections.abc import Mapping

from muster.model import codec
from muster.model.lease import LeaseSet
from muster.model.report import NodeReport, Topology
from muster.model.warmth import NodeWarmth


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    node: str
    boot_id: str
    start_counter: int
    agent_version: str
    protocol: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    sequence: int
    report: NodeReport
    topology: Topology
    leases: LeaseSet
    """What the agent was last told by the admitter that it obeys."""
    warmth: NodeWarmth | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    sequence: int
    plane_age_ms: Mapping[str, int] = codec.mapping()
