"""A node that breaks and heals in any order, its agent restarted and its clock set back: what must hold after every sample.

The world is kept as its own small model (`tests/nodeworld.py`), from which the planes are made and against which the report
is held; it shares no code with the core. design.md sections 3 to 5 and topology.md section 8 give the invariants.

The unit stage drives the same few dozen nodes each time; `MUSTER_MACHINE_EXAMPLES=2000` drives so many others.
"""

import itertools
import os

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from agent.core import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import jsonform
from muster.model.reading import Known
from muster.model.report import DeviceState, Verdict
from tests import builders, nodeplanes, nodeworld
from tests.builders import WHOLE
from tests.nodeworld import CHECKS, DRIVER, GPUS, OPTIONAL, REQUIRED, STATES

POLICY = Policy()
ADMITS = ("admit_strict", "admit_lenient")
EXAMPLES = os.environ.get("MUSTER_MACHINE_EXAMPLES", "")

REASONS = st.sampled_from(("TIMEOUT", "Unavailable", "ResourceExhausted", "PermissionDenied", "UNKNOWN", "Garbage"))
MARKER = {"nvidia.com/mig.config.state": "pending"}
NUMBERS = st.integers(0, GPUS - 1)
SAYS = (planes.RecoveryAction.NONE, planes.RecoveryAction.NONE, planes.RecoveryAction.UNSUPPORTED, None)


def number_of(reading):
    """Return what may be leased on a reading: nothing on null."""
    return reading.value if isinstance(reading, Known) else 0


def admits_of(report):
    return {
        (name, admit): number_of(getattr(resource, admit))
        for name, resource in report.resources.items()
        for admit in ADMITS
    }


def causes_of(report):
    return {(name, item.cause) for name, resource in report.resources.items() for item in resource.findings}


class Node(stateful.RuleBasedStateMachine):
    """Every rule changes one thing; every `sample` holds the report against the world."""

    def __init__(self):
        super().__init__()
        self.world = nodeworld.World()
        self.history = History()
        self.last = None
        self.alone = None
        self.count = 0
        self.hurry = 0

    @stateful.initialize(says=st.sampled_from(SAYS))
    def driver(self, says):
        self.world.silent = says

    # What happens to the hardware.

    @stateful.rule(number=NUMBERS, state=st.sampled_from(sorted(STATES)))
    def turn(self, number, state):
        self.world.gpus[number].state = state

    @stateful.rule(number=NUMBERS, profiles=st.sampled_from((None, *nodeworld.LAYOUTS)))
    def cut(self, number, profiles):
        self.world.cut(number, profiles)

    @stateful.rule(
        number=NUMBERS, code=st.sampled_from(nodeworld.FATAL + nodeworld.PROGRAM), gi=st.sampled_from((None, 1, 2))
    )
    def xid(self, number, code, gi):
        gpu = self.world.gpus[number]
        gi = gi if gpu.cut else None
        gpu.xids = (*gpu.xids, planes.Xid(code=code, at=builders.after(self.world.at), gi=gi, ci=gi and 0))

    # What happens to those who promise it.

    @stateful.rule(number=st.integers(0, 7))
    def count_out_or_in(self, number):
        ids = self.world.promised[WHOLE]
        self.world.counted_out ^= set(ids[number : number + 1])

    @stateful.rule(is_up=st.booleans())
    def plugin(self, is_up):
        self.world.is_plugin_up = is_up

    @stateful.rule(replicas=st.sampled_from((1, 1, 2)))
    def restart_plugin(self, replicas):
        self.world.replicas = replicas
        self.world.plugin_at = builders.after(self.world.at)
        self.world.enumerate()

    @stateful.rule(slices=st.one_of(st.none(), st.frozensets(NUMBERS)))
    def publish(self, slices):
        self.world.slices = slices

    @stateful.rule(units=st.integers(1, 2), name=st.integers(0, 5))
    def bind_pod(self, units, name):
        self.count += 1
        names = self.world.names()
        pod = nodeworld.Pod(name=f"p{self.count}", units=units, resource=names[name % len(names)], at=self.world.at)
        self.world.pods[pod.name] = pod

    @stateful.precondition(lambda self: any(not pod.holds for pod in self.world.pods.values()))
    @stateful.rule()
    def give_devices(self):
        pod = next(pod for pod in self.world.pods.values() if not pod.holds)
        free = sorted(self.world.free(pod.resource))
        if len(free) >= pod.units:
            pod.holds, pod.given_at = tuple(free[: pod.units]), self.world.at

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

    @stateful.rule(text=st.sampled_from(("no", nodeworld.POISON, nodeworld.POISON)), times=st.integers(1, 3))
    def reject_pods(self, text, times):
        self._refuse(*(nodeworld.Refusal(at=self.world.at + each, text=text) for each in range(times)))

    @stateful.rule(left=st.integers(0, 2), times=st.integers(1, 2))
    def reject_by_ledger(self, left, times):
        self._refuse(
            *(nodeworld.Refusal(at=self.world.at + each, text=nodeworld.LEAK, left=left) for each in range(times))
        )

    def _refuse(self, *refusals):
        self.world.refused.extend(refusals)
        self.world.at += len(refusals)

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

    @stateful.rule(steps=st.integers(1, 4))
    def much_happens_between_two_samples(self, steps):
        self.hurry = steps

    @stateful.invariant()
    def follow(self):
        self.hurry -= 1
        if self.hurry < 0:
            self.sample(5)

    @stateful.rule(seconds=st.sampled_from((1, 30, 90, 400, 2000, -60, -5000)))
    def time_passes(self, seconds):
        self.sample(seconds)

    def sample(self, seconds):
        self.world.at += seconds
        report = self._judged()
        self._holds(self.last, report)
        self.world.look()
        self.last = report

    @stateful.rule()
    def nothing_changes_for_a_while(self):
        """Nothing flaps: in a world that stands still numbers only rise, and no verdict or cause comes back that had gone."""
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
        if max(self.world.kubelet_at, self.world.plugin_at) > builders.after(self.world.at - 280):
            return  # a start that lies ahead, once the clock was set back: its own windows are still to come
        causes = [causes_of(report) for report in seen]
        for index, (one, other) in enumerate(itertools.pairwise(causes), start=1):
            assert not (one - other) & set().union(*causes[index:])

    def _judged(self):
        self.history, report = judge.judge(self.history, nodeplanes.observation(self.world), POLICY, api_server=True)
        return report

    # What must hold.

    def _holds(self, before, report):
        is_unread = bool(self.world.unread.keys() & set(REQUIRED))
        assert not is_unread or report.verdict is not Verdict.OK
        # What was last read of DRA, and what was proven of a refusal, are facts and no memory of numbers.
        facts = {key: getattr(self.history, key) for key in ("dra", "refusals", "xids", "unheld")}
        _, alone = judge.judge(History(**facts), nodeplanes.observation(self.world), POLICY, api_server=True)
        for name, resource in report.resources.items():
            self._is_sound(name, resource, is_unread=is_unread)
            if before is not None:
                self._rises_only_confirmed(name, before, report, is_unread=is_unread)
            if name in alone.resources and not self.world.labels:  # a marker is believed by how long it has been there
                assert number_of(resource.admit_lenient) <= number_of(alone.resources[name].admit_lenient)
        for one, other in itertools.combinations(report.resources.values(), 2):
            if set(one.free_devices) & set(other.free_devices):
                assert not (number_of(one.admit_strict) and number_of(other.admit_strict))
        if "nvml" not in self.world.unread:
            self._shows_the_silent(report)
        self.alone = None if is_unread else alone

    def _is_sound(self, name, resource, *, is_unread):
        """Unknown is never zero and never healthy; an admit is within what is free, good, unheld and advertised."""
        strict, lenient = (number_of(getattr(resource, admit)) for admit in ADMITS)
        assert 0 <= strict <= lenient
        if resource.verdict is Verdict.BLIND:
            assert is_unread or nodeworld.HIDDEN in self._kinds() or self.world.unchecked == "mig"
            # Null, or 0 where a finding knows that nothing starts (agent/core/capacity.py).
            assert lenient == 0
        if is_unread:
            # What a DRA driver offers is neither in GetAllocatableResources nor in the Node (faults.md S21).
            assert resource.verdict is not Verdict.OK or name == DRIVER
        elif name in self.world.names():
            assert lenient <= self.world.most(name)
            assert not (strict and self.world.is_pick_risky(name))
            kinds = {self.world.bad(name, text) for text in self.world.offered(name)}
            assert nodeworld.HIDDEN not in kinds or resource.verdict is not Verdict.OK
        else:
            assert lenient == 0

    def _rises_only_confirmed(self, name, before, report, *, is_unread):
        """A rise needs two clean samples in a row that both show it: none on a failed read, none at the first."""
        for admit in ADMITS:
            floor = admits_of(before).get((name, admit), 0)
            shown = admits_of(self.alone).get((name, admit), 0) if self.alone is not None else 0
            if is_unread or not self.world.labels:  # as above: a marker is believed by how long it has been there
                assert admits_of(report)[name, admit] <= (floor if is_unread else max(floor, shown))

    def _shows_the_silent(self, report):
        states = {device.uuid: device.state for device in report.devices}
        for number, gpu in enumerate(self.world.gpus):
            if gpu.error:
                assert states.get(f"GPU-{number}") not in (DeviceState.HEALTHY, DeviceState.DEGRADED)

    def _kinds(self):
        return {STATES[gpu.state][0] for gpu in self.world.gpus}

    def teardown(self):
        """Nothing latches: whatever happened, a node that is mended and rebooted is OK again and admits everything."""
        at = max(self.world.at, 0) + 10
        began = builders.after(at)
        self.world = nodeworld.World(
            at=at + 4000, boot=planes.Boot(id="boot-2", at=began), plugin_at=began, kubelet_at=began
        )
        for _ in range(3):
            self.world.at += 60
            report = self._judged()
        assert report.verdict is Verdict.OK
        assert admits_of(report) == {(WHOLE, admit): GPUS for admit in ADMITS}
        assert (report.resources[WHOLE].findings, report.node_findings, report.pods) == ((), (), ())


Node.TestCase.settings = hypothesis.settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=not EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
TestNode = Node.TestCase
