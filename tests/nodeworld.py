"""A small world of one GPU node: the truth, what of it can be known, and the most that may be admitted there.

Input: what rules of a state machine do to it. Output: an oracle in sets of ids that shares no code with the core: `most`,
`is_pick_risky`, `bad`. What the planes say of it is tests/nodeplanes.py.

Invariant: the oracle is an upper bound of what can be known. A fault whose check cannot be read is nobody's to know unless
a sample has seen it: then it stands until somebody can look again.

Not here: what must hold from one sample to the next (tests/agent/core/test_machine.py).
"""

import dataclasses
import datetime
import itertools
import types

from agent.model import planes
from muster.model.reading import Known
from tests import builders
from tests.builders import WHOLE

GPUS = 4
DRIVER = "gpu.nvidia.com"
OK, BAD, USED, HIDDEN = "ok", "bad", "used", "hidden"
FABRIC_DOWN = Known(planes.Fabric(state=planes.FabricState.IN_PROGRESS))

STATES = types.MappingProxyType({
    "fine": (OK, {}),
    "degraded": (OK, {"clocks_reasons": Known(("hw_slowdown",))}),
    "lost": (BAD, "GPU_IS_LOST"),
    "hangs": (BAD, "TIMEOUT"),
    "wants a reset": (BAD, {"recovery_action": Known(planes.RecoveryAction.RESET)}),
    "remap pending": (BAD, {"remap": Known(planes.Remap(pending=Known(True)))}),
    "without fabric": (BAD, {"fabric": FABRIC_DOWN}),
    "drained": (BAD, {"drain": Known(True)}),
    "used by nobody's process": (USED, {"processes": Known((builders.a_process(),))}),
    "refused": (HIDDEN, "NO_PERMISSION"),
    "unknown error": (HIDDEN, "UNKNOWN"),
})  # fmt: skip
"""State -> what it means, and the fields that show it; a text is the error of the identifying query."""

CHECKS = ("processes", "recovery_action", "remap", "fabric", "drain", "mig", "clocks_reasons", "xids")
REQUIRED = ("nvml", "kubelet", "allocatable", "listed", "node_object", "pods")
OPTIONAL = ("pci", "kernel_log", "plugins", "dra", "cdi", "mps", "device_nodes", "desired_mig", "boot")
LAYOUTS = ((), ("1g.10gb", "1g.10gb"), ("1g.10gb", "2g.20gb"), ("3g.40gb",))
FATAL, PROGRAM = (79, 95), (13, 31, 43)
"""Xids: what takes a GPU or an instance away (agents.md b2), and what a program does to itself."""

POISON = "Allocate failed due to rpc error: GetPreferredAllocation: error getting device links, which is unexpected"
LEAK = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: {}"


def unit_of(text):
    """Return the unit of an id: a replica's is its GPU."""
    return text.partition("::")[0]


def number_of(text):
    """Return which GPU an id is of: the second word of every form here."""
    return int(unit_of(text).split("-")[1])


@dataclasses.dataclass
class Gpu:
    """One card: its state, how it is cut (None: not in MIG mode), what the driver has reported."""

    state: str = "fine"
    cut: tuple[planes.MigInstance, ...] | None = None
    xids: tuple[planes.Xid, ...] = ()

    @property
    def error(self):
        shown = STATES[self.state][1]
        return shown if isinstance(shown, str) else ""


@dataclasses.dataclass
class Pod:
    """A pod: what it asked for under which name, and what it was given."""

    name: str
    units: int
    resource: str = WHOLE
    at: float = 0.0
    holds: tuple[str, ...] = ()
    given_at: float = 0.0
    is_ending: bool = False


@dataclasses.dataclass
class Refusal:
    """A pod that the kubelet refused, and whether more looked free in the samples on both sides of it."""

    at: float
    text: str
    left: int | None = None
    is_proof: bool | None = None


@dataclasses.dataclass
class World:
    """The truth about a node, and what its observer can see of it."""

    at: float = 0.0
    boot: planes.Boot = dataclasses.field(default_factory=lambda: planes.Boot(id="boot-1", at=builders.LONG_AGO))
    gpus: list[Gpu] = dataclasses.field(default_factory=lambda: [Gpu() for _ in range(GPUS)])
    silent: planes.RecoveryAction | None = planes.RecoveryAction.NONE
    """What the driver says it wants of a good GPU: only where it cannot say (`unsupported`, None) do Xids decide."""
    is_plugin_up: bool = True
    plugin_at: datetime.datetime = builders.LONG_AGO
    promised: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    counted_out: set[str] = dataclasses.field(default_factory=set)
    replicas: int = 1
    slices: frozenset[int] | None = None
    """GPUs that a DRA driver publishes; None: there is no driver."""
    pods: dict[str, Pod] = dataclasses.field(default_factory=dict)
    stale_node: int | None = None
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    kubelet_at: datetime.datetime = builders.LONG_AGO
    unread: dict[str, str] = dataclasses.field(default_factory=dict)
    unchecked: str = ""
    refused: list[Refusal] = dataclasses.field(default_factory=list)
    seen: set[tuple[str, str, str]] = dataclasses.field(default_factory=set)
    """(name, id, check) that were bad when somebody could look last."""
    slices_seen: frozenset[int] | None = None
    looked_free: int = 0
    made: int = 0

    def __post_init__(self):
        if not self.promised:
            self.enumerate()

    # What the plugin and the driver have.

    def units(self, number):
        """Return unit -> the name under which the plugin offers it."""
        cut = self.gpus[number].cut
        if cut is None:
            return {f"GPU-{number}": WHOLE}
        return {item.uuid: f"nvidia.com/mig-{item.profile}" for item in cut}

    def enumerate(self):
        """Let the plugin start: it offers what the driver shows now, every name it ever had kept at nothing (S2, S15)."""
        self.counted_out.clear()
        found = dict.fromkeys((WHOLE, *self.promised), ())
        for number, gpu in enumerate(self.gpus):
            for unit, name in self.units(number).items() if not gpu.error else ():
                is_shared = self.replicas > 1 and name == WHOLE
                ids = tuple(f"{unit}::{k}" for k in range(self.replicas)) if is_shared else (unit,)
                found[name] = (*found.get(name, ()), *ids)
        self.promised = found

    def cut(self, number, profiles):
        """Cut a GPU anew (None: no MIG mode): every instance of before is gone, the new ones have UUIDs of their own."""
        self.made += 1
        self.gpus[number].cut = (
            None
            if profiles is None
            else tuple(
                planes.MigInstance(uuid=f"MIG-{number}-{place}-{self.made}", gi=place + 1, ci=0, profile=profile)
                for place, profile in enumerate(profiles)
            )
        )

    def offered(self, name):
        """Return the ids that somebody promises under the name."""
        if name == DRIVER:
            return [f"GPU-{number}" for number in sorted(self.published() or ())]
        return [text for text in self.promised.get(name, ()) if self.is_plugin_up and text not in self.counted_out]

    def names(self):
        return [*self.promised, *([DRIVER] if self.published() else [])]

    def published(self):
        """Return the slices as they can be known: the last that were read (design.md section 3)."""
        return self.slices_seen if "dra" in self.unread else self.slices

    # The oracle.

    def held(self, name):
        """Return the ids of the name that nobody can be given: their unit is held by that id, in another form, by another name."""
        return {text for text in self.offered(name) if any(self._takes(name, text, *hold) for hold in self._holds())}

    def _holds(self):
        """Yield (name, id) of everything that is held; a claim on a device of no slice names nothing."""
        for pod in self.pods.values():
            for text in pod.holds:
                if pod.resource != DRIVER or text in self.offered(DRIVER):
                    yield pod.resource, text

    @staticmethod
    def _takes(name, text, held_name, held):
        if unit_of(text) != unit_of(held):
            return False
        is_sibling = held_name == name and "::" in text and "::" in held
        return text == held or not is_sibling

    def free(self, name):
        return set(self.offered(name)) - self.held(name)

    def bad(self, name, text):
        """Return what can be known to be wrong with an id: OK, BAD, USED or HIDDEN."""
        unit = unit_of(text)
        gpu = self.gpus[number_of(unit)]
        if gpu.error:
            return STATES[gpu.state][0]
        wrong = {
            check
            for check in CHECKS
            if ((name, text, check) in self.seen if check == self.unchecked else self._is_wrong(unit, check))
        }
        if self.unchecked == "mig" and unit.startswith("MIG"):
            return BAD
        return BAD if wrong - {"processes"} else USED if wrong else OK

    def _is_wrong(self, unit, check):
        """Return whether the check finds something wrong with the unit, where it can be read."""
        gpu = self.gpus[number_of(unit)]
        if check == "mig":
            return unit not in self.units(number_of(unit))
        if check == "xids":
            gi = next((item.gi for item in gpu.cut or () if item.uuid == unit), None)
            return self.is_driver_mute() and any(item.code in FATAL and item.gi in (None, gi) for item in gpu.xids)
        if check == "processes" and gpu.cut and unit != gpu.cut[0].uuid:
            return False  # the process is on the first instance
        kind, shown = STATES[gpu.state]
        return kind is not OK and check in shown and not (check == "recovery_action" and self.is_driver_mute())

    def is_driver_mute(self):
        """True if the driver itself does not say what it wants, so that its Xids decide (agents.md b2)."""
        return self.silent is not planes.RecoveryAction.NONE

    def look(self):
        """Remember what a sample has seen; one that could not look at a check leaves it as it was."""
        if "dra" not in self.unread:
            self.slices_seen = self.slices
        if self.unread.keys() & set(REQUIRED):
            return
        before, self.seen = self.seen, set()
        for name in self.names():
            for text, check in itertools.product(self.offered(name), CHECKS):
                unit, key = unit_of(text), (name, text, check)
                if self.gpus[number_of(unit)].error or (check == "processes" and text in self._held_under(name)):
                    continue
                if key in before if check == self.unchecked else self._is_wrong(unit, check):
                    self.seen.add(key)
        looks_free = len(set(self.offered(WHOLE)) - self._held_under(WHOLE))
        for item in self.refused:
            if item.is_proof is None and item.left is not None and item.at <= self.at:
                item.is_proof = item.left < min(looks_free, self.looked_free)
        self.looked_free = looks_free

    def _held_under(self, name):
        return {text for pod in self.pods.values() if pod.resource == name for text in pod.holds}

    def allocatable(self, name):
        is_stale = name == WHOLE and self.stale_node is not None
        return self.stale_node if is_stale else len(self.offered(name))

    def most(self, name):
        """Return the most that may be admitted: free and good, less who waits, and no more than the scheduler has left."""
        own = [pod for pod in self.pods.values() if pod.resource == name]
        waiting = sum(pod.units for pod in own if not pod.holds)
        free = sum(1 for text in self.free(name) if self.bad(name, text) is OK) - (waiting if name != DRIVER else 0)
        left = free if name == DRIVER else self.allocatable(name) - sum(pod.units for pod in own)
        return max(0, min(free, left, *self._ceilings(name)))

    def _ceilings(self, name):
        """Yield what refusals leave of a name: nothing where preferred allocation fails, the kubelet's own figure (E3)."""
        yield GPUS * 8
        if name != WHOLE or self.unread:
            return
        poison = [item for item in self._standing(self.plugin_at) if item.text == POISON]
        is_burst = any(later.at - first.at <= 120 for first, later in zip(poison, poison[2:], strict=False))
        is_lost = any(self.gpus[number_of(text)].state == "lost" for text in self.offered(WHOLE))
        if is_burst or (poison and is_lost):
            yield 0
        looks_free = len(set(self.offered(WHOLE)) - self._held_under(WHOLE))
        leaks = [item for item in self._standing(self.kubelet_at) if item.is_proof and item.left < looks_free]
        if len(leaks) >= 2:
            yield max(item.left for item in self._standing(self.kubelet_at) if item.left is not None)

    def _standing(self, restarted_at):
        """Return the refusals of the last five minutes that no restart and no success has answered, oldest first."""
        answers = [(restarted_at - builders.NOW).total_seconds()]
        answers += [max(pod.at, pod.given_at) for pod in self.pods.values() if pod.holds and pod.resource == WHOLE]
        return sorted(
            (
                item
                for item in self.refused
                if 0 <= self.at - item.at <= 300 and not any(item.at <= answer <= self.at for answer in answers)
            ),
            key=lambda item: item.at,
        )

    def is_pick_risky(self, name):
        """Return whether the kubelet may hand out an id that is no good."""
        return any(self.bad(name, text) is not OK for text in self.free(name))
