"""A node that breaks and heals in any order, its agent restarted and its clock set back: what must hold after every sample.

The world is kept as its own small model (`World`), from which the planes are made and against which the report is held; it
shares no code with the core. design.md sections 3 to 5 and topology.md section 8 give the invariants.
"""

import dataclasses
import datetime
import itertools

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from agent.core import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import jsonform, kube
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from tests import builders
from tests.builders import WHOLE, a_gpu, a_lost_gpu

GPUS = 4
POLICY = Policy()
ADMITS = ("admit_strict", "admit_lenient")

OK, BAD, USED, HIDDEN = "ok", "bad", "used", "hidden"
FABRIC_DOWN = Known(planes.Fabric(state=planes.FabricState.IN_PROGRESS))

STATES = {
    "fine": (OK, a_gpu),
    "degraded": (OK, lambda number: a_gpu(number, clocks_reasons=Known(("hw_slowdown",)))),
    "lost": (BAD, a_lost_gpu),
    "hangs": (BAD, lambda number: a_lost_gpu(number, "TIMEOUT")),
    "wants a reset": (BAD, lambda number: a_gpu(number, recovery_action=Known(planes.RecoveryAction.RESET))),
    "remap pending": (BAD, lambda number: a_gpu(number, remap=Known(planes.Remap(pending=Known(True))))),
    "without fabric": (BAD, lambda number: a_gpu(number, fabric=FABRIC_DOWN)),
    "drained": (BAD, lambda number: a_gpu(number, drain=Known(True))),
    "used by nobody's process": (USED, lambda number: a_gpu(number, processes=Known((builders.a_process(),)))),
    "refused": (HIDDEN, lambda number: a_lost_gpu(number, "NO_PERMISSION")),
    "unknown error": (HIDDEN, lambda number: a_lost_gpu(number, "UNKNOWN")),
}
SHOWN_BY = {
    "wants a reset": "recovery_action", "remap pending": "remap", "without fabric": "fabric", "drained": "drain",
    "used by nobody's process": "processes",
}  # fmt: skip
"""A fault that begins while its check cannot be read is nobody's to know: the check is unverified, and no number falls."""
CHECKS = ("processes", "recovery_action", "remap", "fabric", "drain", "mig", "clocks_reasons")
REQUIRED = ("nvml", "kubelet", "allocatable", "listed", "node_object", "pods")
OPTIONAL = ("pci", "kernel_log", "plugins", "dra", "cdi", "mps", "device_nodes", "desired_mig", "boot")
REASONS = st.sampled_from(("TIMEOUT", "Unavailable", "ResourceExhausted", "PermissionDenied", "UNKNOWN", "Garbage"))
MARKER = {"nvidia.com/mig.config.state": "pending"}


@dataclasses.dataclass
class Pod:
    """A pod of the world: what it asked for, and what the kubelet gave it."""

    name: str
    units: int
    holds: tuple[int, ...] = ()
    is_ending: bool = False


@dataclasses.dataclass
class World:
    """The truth about a node."""

    at: float = 0.0
    gpus: list[str] = dataclasses.field(default_factory=lambda: ["fine"] * GPUS)
    counted_out: set[int] = dataclasses.field(default_factory=set)
    is_plugin_up: bool = True
    pods: dict[str, Pod] = dataclasses.field(default_factory=dict)
    stale_node: int | None = None
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    kubelet_at: datetime.datetime = builders.LONG_AGO
    unread: dict[str, str] = dataclasses.field(default_factory=dict)
    unchecked: str = ""
    rejected: list[float] = dataclasses.field(default_factory=list)

    def offered(self):
        """Return the GPUs that the plugin promises."""
        return [number for number in range(GPUS) if self.is_plugin_up and number not in self.counted_out]

    def kind(self, number):
        """Return what can be known of a GPU."""
        state = self.gpus[number]
        return OK if self.unchecked and SHOWN_BY.get(state) == self.unchecked else STATES[state][0]

    def held(self):
        return {number for pod in self.pods.values() for number in pod.holds}

    def allocatable(self):
        return len(self.offered()) if self.stale_node is None else self.stale_node

    def most(self):
        """Return the most that may be admitted: free and good, less who waits, and no more than the scheduler has left."""
        good = [number for number in self.offered() if self.kind(number) is OK]
        waiting = sum(pod.units for pod in self.pods.values() if not pod.holds)
        free = len(set(good) - self.held()) - waiting
        return max(0, min(free, self.allocatable() - sum(pod.units for pod in self.pods.values())))

    def is_pick_risky(self):
        """Return whether the kubelet may hand out an id that is no good."""
        return any(self.kind(number) in (BAD, USED) for number in set(self.offered()) - self.held())

    def observation(self):
        """Return what all planes say of it."""
        ids = tuple(f"GPU-{number}" for number in self.offered())
        pods = tuple(
            builders.a_pod(
                pod.name, units=pod.units, deletion_at=builders.after(self.at - 30) if pod.is_ending else None
            )
            for pod in self.pods.values()
        )
        listed = tuple(
            builders.a_listed_pod(pod.name, *(f"GPU-{number}" for number in pod.holds)) for pod in self.pods.values()
        )
        kubelet = builders.a_kubelet({WHOLE: ids} if ids else {}, listed, started_at=Known(self.kubelet_at))
        devices = tuple(self._gpu(number) for number in range(GPUS))
        whole = builders.a_node(
            GPUS,
            at=self.at,
            nvml=Known(planes.Nvml(devices=devices)),
            kubelet=kubelet,
            node_object=builders.a_node_object({WHOLE: (GPUS, self.allocatable())}, labels=self.labels),
            pods=Known(pods),
            rejections=tuple(
                kube.Rejection(at=builders.after(at), pod=f"ml/r{at}", reason="UnexpectedAdmissionError", message="no")
                for at in self.rejected
            ),
        )
        return self._blinded(whole)

    def _gpu(self, number):
        gpu = STATES[self.gpus[number]][1](number)
        return (
            dataclasses.replace(gpu, **{self.unchecked: Unknown("TIMEOUT")})
            if self.unchecked and not gpu.error
            else gpu
        )

    def _blinded(self, observation):
        for plane, reason in self.unread.items():
            field = {"allocatable": "allocatable", "listed": "pods"}.get(plane)
            if field is None:
                observation = dataclasses.replace(observation, **{plane: Unknown(reason)})
            elif isinstance(observation.kubelet, Known):
                kubelet = dataclasses.replace(observation.kubelet.value, **{field: Unknown(reason)})
                observation = dataclasses.replace(observation, kubelet=Known(kubelet))
        return observation


def number_of(reading):
    """Return what may be leased on a reading: nothing on null."""
    return reading.value if isinstance(reading, Known) else 0


def admits_of(report):
    return {
        (name, admit): number_of(getattr(resource, admit))
        for name, resource in report.resources.items()
        for admit in ADMITS
    }


class Node(stateful.RuleBasedStateMachine):
    """Every rule changes one thing; every `sample` holds the report against the world."""

    def __init__(self):
        super().__init__()
        self.world = World()
        self.history = History()
        self.last = None
        self.count = 0

    # What happens to the node.

    @stateful.rule(number=st.integers(0, GPUS - 1), state=st.sampled_from(sorted(STATES)))
    def turn(self, number, state):
        self.world.gpus[number] = state

    @stateful.rule(number=st.integers(0, GPUS - 1))
    def count_out_or_in(self, number):
        self.world.counted_out ^= {number}

    @stateful.rule(is_up=st.booleans())
    def plugin(self, is_up):
        self.world.is_plugin_up = is_up

    @stateful.rule(units=st.integers(1, 2))
    def bind_pod(self, units):
        self.count += 1
        self.world.pods[f"p{self.count}"] = Pod(name=f"p{self.count}", units=units)

    @stateful.precondition(lambda self: any(not pod.holds for pod in self.world.pods.values()))
    @stateful.rule()
    def give_devices(self):
        pod = next(pod for pod in self.world.pods.values() if not pod.holds)
        free = [number for number in self.world.offered() if number not in self.world.held()]
        if len(free) >= pod.units:
            pod.holds = tuple(free[: pod.units])

    @stateful.precondition(lambda self: self.world.pods)
    @stateful.rule(is_gone=st.booleans())
    def end_pod(self, is_gone):
        name = min(self.world.pods)
        if is_gone:
            del self.world.pods[name]
        else:
            self.world.pods[name].is_ending = True

    @stateful.rule(said=st.one_of(st.none(), st.integers(0, GPUS)))
    def node_status(self, said):
        self.world.stale_node = said

    @stateful.rule(labels=st.sampled_from(({}, MARKER)))
    def mark(self, labels):
        self.world.labels = dict(labels)

    @stateful.rule()
    def restart_kubelet(self):
        self.world.kubelet_at = builders.after(self.world.at)

    @stateful.rule()
    def reject_a_pod(self):
        self.world.rejected.append(self.world.at)

    # What happens to the observer.

    @stateful.rule(plane=st.sampled_from(REQUIRED + OPTIONAL), reason=REASONS)
    def fail(self, plane, reason):
        self.world.unread[plane] = reason

    @stateful.rule()
    def read_again(self):
        self.world.unread.clear()

    @stateful.rule(check=st.sampled_from(("", *CHECKS)))
    def check_fails(self, check):
        self.world.unchecked = check

    @stateful.rule()
    def restart_agent(self):
        self.history = jsonform.from_json(History, jsonform.to_json(self.history))

    @stateful.rule(seconds=st.sampled_from((1, 5, 5, 30, 90, 400, 2000, -60, -5000)))
    def sample(self, seconds):
        self.world.at += seconds
        before, self.last = self.last, self._judged()
        self._holds(before, self.last)

    @stateful.rule()
    def nothing_changes_for_a_while(self):
        """Nothing flaps: in a world that stands still numbers only rise, and no verdict comes back that had gone."""
        self.sample(5)
        seen = [self.last]
        for _ in range(6):
            self.sample(45)
            seen.append(self.last)
        for earlier, later in itertools.pairwise(seen):
            for key, value in admits_of(later).items():
                assert value >= admits_of(earlier)[key]
        for name in seen[0].resources:
            verdicts = [report.resources[name].verdict for report in seen]
            changes = [one for one, other in itertools.pairwise(verdicts) if one is not other]
            assert len(set(changes)) == len(changes)

    def _judged(self):
        self.history, report = judge.judge(self.history, self.world.observation(), POLICY, api_server=True)
        return report

    def _holds(self, before, report):
        world = self.world
        _, alone = judge.judge(History(), world.observation(), POLICY, api_server=True)
        is_unread = bool(world.unread.keys() & set(REQUIRED))
        for name, resource in report.resources.items():
            strict, lenient = (number_of(getattr(resource, admit)) for admit in ADMITS)
            assert 0 <= strict <= lenient
            assert resource.verdict is not Verdict.BLIND or is_unread or HIDDEN in self._kinds()
            if is_unread:
                assert resource.verdict is not Verdict.OK
            elif name == WHOLE:
                assert lenient <= world.most()
                assert not (strict and world.is_pick_risky())
            if before is not None and (is_unread or name not in before.resources):
                floor = admits_of(before).get((name, "admit_lenient"), 0)
                assert lenient <= floor
            if name in alone.resources and not world.labels:  # a marker is believed by how long it has been there
                assert lenient <= number_of(alone.resources[name].admit_lenient)

    def _kinds(self):
        return {STATES[state][0] for state in self.world.gpus}

    def teardown(self):
        """Nothing latches: whatever happened, a healthy node is OK again and admits everything."""
        at = max(self.world.at, 0) + 4000
        self.world = World(at=at)
        for _ in range(3):
            self.world.at += 60
            report = self._judged()
        assert report.verdict is Verdict.OK
        assert admits_of(report) == {(WHOLE, admit): GPUS for admit in ADMITS}
        assert (report.resources[WHOLE].findings, report.node_findings, report.pods) == ((), (), ())


Node.TestCase.settings = hypothesis.settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
TestNode = Node.TestCase
