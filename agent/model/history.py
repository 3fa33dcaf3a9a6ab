"""What the core remembers from one sample to the next: enough to see how long something lasts, and no more.

Invariant: made only of shapes that muster.model.codec knows, and bounded, so that the evidence file can hold it; a
restart that reads it back goes on exactly where the agent stopped, and so never raises capacity. `History()` means no
earlier sample: the next one is the baseline and is published at once.

Not here: anything that would make a fault latch. Evidence that its sample no longer shows is dropped, and what no plane
goes on showing (a refusal) is dropped with what answers it.
"""

import dataclasses
import datetime
from collections.abc import Mapping

from agent.model import planes
from muster.model import codec, kube
from muster.model.report import Verdict

MAX_EVIDENCE = 512
"""An 8-GPU node in full MIG has 56 instances; a few rules can hit each."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A disagreement that the last clean sample showed."""

    key: str
    """rule|resource|subject"""
    since: datetime.datetime
    """First sample that showed it."""
    samples: int
    """Samples in a row."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pod that the kubelet refused in words that may accuse the node (faults.md B3, B4, E3)."""

    key: str
    """UID of the pod, or its name where there is none: one pod counts once."""
    pod: str
    at: datetime.datetime
    resource: str = ""
    """The one whose devices were too few; empty: the plugin's preferred allocation failed."""
    most: int | None = None
    """How many of its devices can be held at once if the kubelet's ledger leaks; None: nothing looked free that was not."""
    proves: str = ""
    """Rule that has fired on it: it stays until it is answered. Empty: it fades after 5 min."""
    answerable: bool = False
    """Once it could be read when that which it accuses has started: then it waits for the next start."""
    answered: bool = False
    """Remembered only so that it is not taken for a new one while the API server still shows it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RememberedXid:
    """A fatal Xid of this boot."""

    gpu: str
    """UUID."""
    xid: planes.Xid


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMemory:
    """What was published of a resource, and what the last sample alone would have given."""

    verdict: Verdict
    strict: int | None = None
    """None: null was published."""
    lenient: int | None = None
    seen_strict: int | None = None
    """None: the last sample was not clean."""
    seen_lenient: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A maintenance marker that is there, since when this agent has seen it, and whether the node went on serving."""

    name: str
    since: datetime.datetime
    serving_since: datetime.datetime | None = None
    moved_at: datetime.datetime | None = None
    """Last change of the MIG instances under it: somebody is at work and not stuck (faults.md C7)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """State of the core after a sample."""

    started: bool = False
    """A sample has been judged."""
    boot_id: str = ""
    previous_boot_id: str = ""
    node_object_seen: bool = False
    """The Node plane was there once: if it goes, it is unreadable and not unneeded."""
    pods_seen: bool = False
    evidence: tuple[Evidence, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Oldest first."""
    xids: tuple[RememberedXid, ...] = ()
    """Fatal ones: who told them may have restarted, or may have had room for newer ones only."""
    unheld: Mapping[str, int] = codec.mapping()
    """Resource -> advertised ids that nobody held in the last sample that could see."""
    resources: Mapping[str, ResourceMemory] = codec.mapping()
    marker: Marker | None = None
    mig_parents: Mapping[str, str] = codec.mapping()
    """MIG UUID -> GPU UUID of the last readable sample: whose instances a silent GPU takes with it."""
    dra: kube.Dra = kube.Dra()
    """Slices and classes of the last readable sample: an unreadable DRA plane changes no number (design.md section 3)."""
