"""The keys that Muster reads and writes on Kubernetes objects: the table of design.md section 6.

Invariant: a key is spelt here and nowhere else in code, and docs/labels.md lists exactly these (a test compares them).

Not here: what the values mean (admitter/core), and keys of others (muster/model/kube.py).
"""

import dataclasses
import enum

DOMAIN = "muster.dev"


class Kind(enum.StrEnum):
    """Where on an object a key stands."""

    LABEL = "label"
    ANNOTATION = "annotation"
    CONDITION = "condition"
    TAINT = "taint, NoSchedule"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: its name below the domain, the kinds of object that carry it, and in which place."""

    name: str
    on: tuple[str, ...]
    kind: Kind

    @property
    def full(self) -> str:
        """Return the key as Kubernetes spells it."""
        return f"{DOMAIN}/{self.name}"


GANG = Key(name="gang", on=("pod",), kind=Kind.LABEL)
"""Also the name of the scheduling gate."""

GANG_SIZE = Key(name="gang-size", on=("pod",), kind=Kind.ANNOTATION)
PODSET = Key(name="podset", on=("pod",), kind=Kind.LABEL)
TOPOLOGY = Key(name="topology", on=("pod",), kind=Kind.ANNOTATION)
MAX_RUNTIME = Key(name="max-runtime", on=("pod", "Job"), kind=Kind.ANNOTATION)
CLASS = Key(name="class", on=("pod",), kind=Kind.LABEL)
MANAGED = Key(name="managed", on=("Namespace",), kind=Kind.LABEL)
NOT_STARTED = Key(name="NotStarted", on=("pod",), kind=Kind.CONDITION)
PLACED = Key(name="Placed", on=("pod",), kind=Kind.CONDITION)
CHECKPOINT = Key(name="checkpoint", on=("Job", "Workload"), kind=Kind.LABEL)
LAST_CHECKPOINT = Key(name="last-checkpoint", on=("Job", "Workload"), kind=Kind.ANNOTATION)
LEASE = Key(name="lease", on=("pod",), kind=Kind.ANNOTATION)
UNVERIFIED = Key(name="unverified", on=("pod",), kind=Kind.ANNOTATION)
"""It was let go without a lease while Muster could not see; names the pods that went together."""

REPLAN = Key(name="replan", on=("Job", "JobSet", "pod"), kind=Kind.ANNOTATION)
"""We suspended it to have its held pods made anew; whoever leads resumes it. On a bare pod: we sent it back, and whoever leads
makes it anew."""

KEPT = Key(name="kept", on=("Node",), kind=Kind.ANNOTATION)
"""Which annotations of autoscalers on the Node are ours."""

UNTRUSTED = Key(name="untrusted", on=("Node",), kind=Kind.TAINT)

ALL = (
    GANG,
    GANG_SIZE,
    PODSET,
    TOPOLOGY,
    MAX_RUNTIME,
    CLASS,
    MANAGED,
    NOT_STARTED,
    PLACED,
    CHECKPOINT,
    LAST_CHECKPOINT,
    LEASE,
    UNVERIFIED,
    REPLAN,
    KEPT,
    UNTRUSTED,
)
"""In the order of the table."""

GANG_SIZE_RANGE = (1, 100_000)
DEFAULT_PODSET = "main"
