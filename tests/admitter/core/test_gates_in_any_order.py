"""Held pods and a queue that change at random, with requests that are lost and processes that forget."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitter.core import gates
from admitter.model.hold import Hold, Open, Release, Replan, Strike, Tell, Withdraw
from admitter.model.record import GangState
from muster.model import kube, labels
from tests.admitter.gatescenes import NOW, POLICY, a_record, a_scene, running
from tests.admitter.grouppods import GATE, GPU, a_pod, rejected


class World:
    """Pods, a queue and the adapter's memory, changed at random; every intent may be lost."""

    def __init__(self, size):
        self.size, self.serial, self.now = size, 0, NOW
        self.pods, self.record, self.hold, self.leases, self.pinned = {}, None, Hold(), 0, {}

    def create(self):
        live = [pod for pod in self.pods.values() if not pod.is_finished]
        if len(live) < self.size:
            self.serial += 1
            uid = f"u{self.serial}"
            self.pods[uid] = a_pod(
                f"t-{self.serial}", uid=uid, annotations={labels.GANG_SIZE.full: str(self.size)}, requests={GPU: 1}
            )

    def change(self, number, action):
        if not self.pods:
            return
        uid = sorted(self.pods)[number % len(self.pods)]
        pod = self.pods[uid]
        if action == "delete":
            del self.pods[uid]
        elif action == "bind" and not pod.gates and not pod.node:
            self.pods[uid] = dataclasses.replace(pod, node=self.pinned[uid])
        elif action == "run" and pod.node and not pod.is_finished:
            self.pods[uid] = running(pod, pod.node)
        elif action == "reject" and pod.node and pod.phase is kube.PodPhase.PENDING:
            self.pods[uid] = rejected(pod, pod.node)
        elif action == "fail" and pod.phase is kube.PodPhase.RUNNING:
            self.pods[uid] = dataclasses.replace(pod, phase=kube.PodPhase.FAILED)

    def lease(self):
        if self.record is not None and self.record.state is GangState.WAITING:
            self.leases += 1
            gang = self.record.gang
            nodes = [f"n{self.leases}-{index}" for index in range(gang.pods)]
            self.record = dataclasses.replace(
                a_record(gang, nodes=nodes),
                lease=dataclasses.replace(a_record(gang, nodes=nodes).lease, id=f"l{self.leases}"),
            )

    def step(self, lost):
        if not self.pods:
            return
        pods = list(self.pods.values())
        known = {self.record.lease.id: self.record.gang.request_id} if self.record and self.record.lease else {}
        scene = a_scene(pods, self.record, now=self.now, request_of=known)
        self.hold, intents = gates.step(scene, self.hold, POLICY)
        for intent in intents:
            self.check(intent, scene)
            if not lost or isinstance(intent, Strike | Tell):
                self.apply(intent)

    def check(self, intent, scene):
        match intent:
            case Release(uid=uid, nodes=nodes, lease_id=lease_id):
                assert self.record.state in (GangState.LEASED, GangState.STARTED)
                assert lease_id == self.record.lease.id
                assert set(nodes) <= {place.node for place in self.record.lease.placements}
                assert self.pods[uid].gates == (GATE,)
                taken = [seat.node for other, seat in self.hold.seats.items() if other != uid and other in self.pods]
                assert nodes[0] not in taken, "a place has one pod at a time"
            case Replan(uids=uids):
                assert not any(self.pods[uid].phase is kube.PodPhase.RUNNING for uid in uids)
                seated = [pod for pod in self.pods.values() if pod.annotations.get(labels.LEASE.full)]
                assert not any(
                    pod.phase is kube.PodPhase.RUNNING for pod in seated if not pod.is_finished and pod.uid in uids
                )
            case Open(gang=gang):
                assert len(scene.group.members) == self.size
                assert gang.pods <= self.size

    def apply(self, intent):
        match intent:
            case Open(gang=gang):
                self.record = a_record(gang)
            case Withdraw():
                self.record = dataclasses.replace(self.record, state=GangState.ENDED, lease=None)
            case Release(uid=uid, nodes=nodes, lease_id=lease_id):
                pod = self.pods[uid]
                self.pinned = {**self.pinned, uid: nodes[0]}
                annotations = {**pod.annotations, labels.LEASE.full: lease_id}
                self.pods[uid] = dataclasses.replace(pod, gates=(), annotations=annotations)
            case Replan(uids=uids):
                for uid in uids:
                    self.pods.pop(uid, None)


ACTIONS = st.one_of(
    st.tuples(st.just("create"), st.just(0)),
    st.tuples(st.sampled_from(["delete", "bind", "run", "reject", "fail"]), st.integers(0, 9)),
    st.tuples(st.just("lease"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([1, 61])),
    st.tuples(st.sampled_from(["step", "lost", "restart"]), st.just(0)),
)


@settings(max_examples=150)
@given(size=st.integers(1, 4), actions=st.lists(ACTIONS, max_size=60))
def test_no_order_of_events_breaks_a_promise(size, actions):
    world = World(size)
    for action, number in actions:
        match action:
            case "create":
                world.create()
            case "lease":
                world.lease()
            case "wait":
                world.now += number
            case "step" | "lost":
                world.step(lost=action == "lost")
            case "restart" if world.record is None or world.record.state is not GangState.WAITING:
                # A new process remembers nothing; leases are found in the agents' words.
                world.hold = Hold()
            case "restart":
                pass
            case _:
                world.change(number, action)
    live = sum(not pod.is_finished for pod in world.pods.values())
    assert live <= size


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_gang_left_alone_starts(size):
    world = World(size)
    for _ in range(size):
        world.create()
    world.step(lost=False)
    world.lease()
    world.step(lost=False)
    for number in range(size):
        world.change(number, "bind")
    world.step(lost=False)
    assert all(not pod.gates and pod.node for pod in world.pods.values())
    assert len({pod.node for pod in world.pods.values()}) == size
    assert {member.uid for member in world.hold.joined} == set(world.pods)
