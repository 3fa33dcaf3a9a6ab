"""What the gate adapter remembers of one group, and what it wants done next.

Values only. `Hold` lives in memory and can be lost at any moment: pods carry `muster.dev/lease`, agents report their leases,
and core/gates.py finds its way back from those two.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import TypeAlias

from admitter.model.cluster import Owner
from admitter.model.gang import Gang, Member
from admitter.model.standing import Standing
from muster.model import codec, labels


class HoldReason(enum.StrEnum):
    """Why the pods of a group are held, beside the queue's own reasons (muster.model.vocabulary.WaitReason)."""

    INVALID_GANG = "InvalidGang"
    INCOMPLETE = "IncompleteGang"
    FOREIGN_GATE = "ForeignGate"
    ON_STRIKE = "OnStrike"
    NAME_TAKEN = "NameTaken"
    SELF_BLOCKED = "SelfBlocked"
    DEADLINE_RUNS = "DeadlineRuns"
    NOT_BOUND = "ReleasedNotBound"
    NO_PLACE = "PlaceLost"
    CANNOT_PULL = "CannotPull"
    RELEASED = "Released"
    UNVERIFIED = "ReleasedUnverified"
    FAILED = "InternalError"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """The settings of the adapter."""

    gate: str = labels.GANG.full
    gates_before: frozenset[str] = frozenset()
    """Gates of others that go before ours: a member that still has one is complete all the same."""
    devices: frozenset[str] = frozenset()
    """Resources beside `nvidia.com/` that leases are held on."""
    bind_patience_seconds: float = 60.0
    """Released and not bound for so long: the gang is planned anew, if nothing of it has started."""
    pull_patience_seconds: float = 600.0
    """A member could not pull for so long since its first pull failed: the same, and nobody's node is blamed."""
    strike_seconds: float = 5.0
    """Delay after the first strike; doubles with each."""
    strike_max_seconds: float = 300.0
    strike_memory_seconds: float = 600.0
    """So long after the last refusal a gang has none: it may have a reservation again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a member was given."""

    node: str
    podset: str
    lease_id: str
    at: float
    """When it was let go, by the admitter's monotonic clock."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a person reads of a group."""

    reason: str
    """A HoldReason or a WaitReason."""
    summary: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What is remembered of one group."""

    request_id: str = ""
    """Of the present generation; empty: nothing was asked for it."""
    seats: Mapping[str, Seat] = codec.mapping()
    """UID -> seat, of every member that was let go in this generation, until it is done."""
    joined: frozenset[Member] = frozenset()
    """What the desk was told."""
    left: frozenset[str] = frozenset()
    """UIDs whose units were given back."""
    has_run: bool = False
    """A container of this generation has started."""
    strikes: Mapping[str, int] = codec.mapping()
    """`refusing party: reason` -> refusals, until they are forgotten."""
    refused_by: str = ""
    """The last one, for a person."""
    struck_at: float = 0.0
    not_before: float = 0.0
    """On strike until then."""
    blamed: frozenset[str] = frozenset()
    """UIDs whose rejection or refusal has been counted."""
    unverified: str = ""
    """Names the pods that were let go without a lease (core/failopen.py); empty: none were."""
    astray: Mapping[str, float] = codec.mapping()
    """UID -> since when a member was seen that was let go under a lease which nobody knows, and is not bound."""
    yields: str = ""
    """Why its lease goes back, once nobody who was let go under it may still be bound; empty: it keeps it."""
    unseated: Mapping[str, float] = codec.mapping()
    """UID -> since when a held member has had no place under the lease that it may go to."""
    unpulled: Mapping[str, float] = codec.mapping()
    """UID -> since when a member was first seen that could not pull, and has not started since."""
    stays: Told | None = None
    """Why it is left as it is, though some of it cannot start; None: all can, or it is sent back."""
    told: Told | None = None
    paused: Owner | None = None
    """What makes its pods was suspended until there is a place for them: a deadline of its own would have run."""
    paused_at: float = 0.0
    pauses: int = 0
    """Tries to suspend it since it last had a lease."""
    kept_at: float | None = None
    """When something of its own last kept it from asking; None: nothing has."""
    cannot_pause: bool = False
    """The API server refused it: the deadline runs."""
    is_warned: bool = False
    """It was told that its deadline runs."""

    @property
    def refusals(self) -> int:
        """Strikes that are remembered."""
        return sum(self.strikes.values())


# -- what is wanted done


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Ask the queue."""

    gang: Gang
    asked_at: float | None = None
    """When its last member was made; None: not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Take the question back or give the lease up."""

    detail: str
    has_run: bool = False
    """A container of it has started: it has had its turn."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Tell the queue of refusals."""

    standing: Standing


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member is on its node."""

    member: Member


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A member has done its work and gives its units back."""

    uid: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Pin a pod and take our gate off it, in one request."""

    uid: str
    nodes: tuple[str, ...]
    """Where it may run; empty: anywhere, for a pod that needs no device."""
    lease_id: str
    unverified: str = ""
    """The mark of a pod that goes without a lease, because nobody could see."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """A whole gang goes without a lease: to be counted and noted."""

    pods: int
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Somebody refused what the gang was given."""

    party: str
    """`node NAME`, `scheduler NAME`, `api server`"""
    reason: str
    detail: str
    node: str = ""
    """Of a broken promise: the node whose kubelet refused a pod that we let go."""
    uid: str = ""
    lease_id: str = ""

    @property
    def blame(self) -> str:
        """Who refused, and why: what refusals are counted by."""
        return f"{self.party}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Send the gang back through its owner, so that its pods come back held."""

    owner: Owner | None
    """A Job or JobSet is suspended and resumed. Of anything else the pods are deleted, and bare ones (None) made anew."""
    uids: tuple[str, ...]
    """Of the members that have to come back; none of them has started."""
    detail: str
    is_bound: bool = False
    """Some are on nodes, where they cannot pull; False: nothing that is on a node may end with it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Suspend what makes held pods, so that its own clock stands still; the question stays in the queue."""

    owner: Owner


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """There are places: let it make its pods again."""

    owner: Owner


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Say why, where people look."""

    told: Told


Intent: TypeAlias = Open | Withdraw | Stand | Join | Leave | Release | LetGo | Strike | Replan | Pause | Resume | Tell
