"""Faults that come together: whole expected numbers, derived from faults.md and design.md section 3.

A row is an observation that stays the same over the samples of `SETTLED`, long enough for the short hold-downs (30 s), and
for each resource what the last report must say: verdict, admit_strict, admit_lenient, pick_risk. None is null.
"""

import dataclasses

import pytest

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import codec, kube
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import WHOLE, a_gpu, a_listed_pod, a_lost_gpu, a_mig_gpu, a_node, a_pod, a_process, with_gpus

SETTLED = (0, 20, 40)
EIGHT = tuple(f"GPU-{number}" for number in range(8))
MIG = "nvidia.com/mig-1g.10gb"
SHARE = "vendor.example/share"
BLIND = ("BLIND", None, None, None)
FABRIC_DOWN = Known(planes.Fabric(state=planes.FabricState.IN_PROGRESS))
PENDING = {"nvidia.com/mig.config.state": "pending"}


def node(*bound, listed=(), ids=EIGHT, kubelet=codec.EMPTY, gpus=(), **changes):
    """Return an eight-GPU node with these bound and listed pods, some GPUs replaced."""
    its_kubelet = dataclasses.replace(builders.a_kubelet({WHOLE: ids}, listed).value, **kubelet)
    whole = a_node(**{"kubelet": Known(its_kubelet), "pods": Known(bound), **changes})
    return with_gpus(whole, *gpus) if gpus else whole


def a_used_gpu(number, cgroup="/user.slice"):
    return a_gpu(number, processes=Known((a_process(cgroup=cgroup),)))


def sliced(*bound, listed=(), profiles=("1g.10gb",) * 3, ids=("MIG-0-0", "MIG-0-1", "MIG-0-2"), count=3):
    """Return a node of one GPU in MIG mode."""
    return a_node(
        nvml=Known(planes.Nvml(devices=(a_mig_gpu(0, profiles),))),
        kubelet=builders.a_kubelet({MIG: ids}, listed),
        node_object=builders.a_node_object({MIG: count}),
        pods=Known(bound),
    )


def shared(*bound, listed=(), gpus=()):
    """Return a node of two GPUs, each offered as four replicas."""
    ids = tuple(f"GPU-{number}::{replica}" for number in (0, 1) for replica in range(4))
    whole = a_node(
        2,
        kubelet=builders.a_kubelet({WHOLE: ids}, listed),
        node_object=builders.a_node_object({WHOLE: 8}),
        pods=Known(bound),
    )
    return with_gpus(whole, *gpus)


def two_names(*bound, listed=(), share=("GPU-0", "GPU-1")):
    """Return a node whose two GPUs are promised under two names."""
    return a_node(
        2,
        kubelet=builders.a_kubelet({WHOLE: ("GPU-0", "GPU-1"), SHARE: share}, listed),
        node_object=builders.a_node_object({WHOLE: 2, SHARE: len(share)}),
        pods=Known(bound),
    )


def unlisted(observation, reason="ResourceExhausted"):
    kubelet = dataclasses.replace(observation.kubelet.value, pods=Unknown(reason))
    return dataclasses.replace(observation, kubelet=Known(kubelet))


def a_rejection(name, left):
    message = (
        f"Allocate failed due to requested number of devices unavailable for {WHOLE}. Requested: 1, Available: {left}"
    )
    return kube.Rejection(pod=f"ml/{name}", at=builders.after(-10), reason="UnexpectedAdmissionError", message=message)


TWINS = (a_pod("a"), a_pod("a", uid="uid-a2"))
LEAKS = (a_rejection("x", 2), a_rejection("y", 2))
OF_A = builders.pod_cgroup("uid-a")
A_ON_0 = (a_listed_pod("a", "GPU-0"),)


def decided(uid):
    entry = planes.CheckpointPod(uid=uid, resource=WHOLE, ids=("GPU-0",))
    return {"checkpoint": Known(planes.Checkpoint(registered=codec.EMPTY, pods=(entry,)))}


ROWS = {
    # B2, P3a: GPU-0 is held, GPU-1 lost: six are good, one of the seven that may be picked is bad.
    "one lost, one held, the rest free": (
        node(a_pod("a"), listed=A_ON_0, gpus=[a_lost_gpu(1)]),
        {WHOLE: ("OVER", 0, 6, 1 / 7)},
    ),
    "the lost one is the held one": (
        node(a_pod("a"), listed=A_ON_0, gpus=[a_lost_gpu(0)]),
        {WHOLE: ("OVER", 7, 7, 0.0)},
    ),
    # B9 with B2: counts say 7 - 8 = -1, sets say 0; signed, then clamped (S14).
    "requests beyond allocatable with one counted out": (
        node(
            *(a_pod(str(number)) for number in range(8)),
            ids=EIGHT[:7],
            listed=[a_listed_pod(str(number), f"GPU-{number}") for number in range(8)],
            node_object=builders.a_node_object({WHOLE: (8, 7)}),
            gpus=[a_lost_gpu(7)],
        ),
        {WHOLE: ("UNDER", 0, 0, 0.0)},
    ),
    "held and counted out, one free and good": (
        node(
            a_pod("a"),
            ids=EIGHT[1:2],
            listed=A_ON_0,
            node_object=builders.a_node_object({WHOLE: (2, 1)}),
            nvml=Known(planes.Nvml(devices=(a_gpu(0), a_gpu(1)))),
        ),
        {WHOLE: ("UNDER", 0, 0, 0.0)},
    ),
    # F1: replicas of a GPU are its ids; one held leaves seven, a lost GPU takes all four of its own.
    "replicas with one held": (
        shared(a_pod("a"), listed=(a_listed_pod("a", "GPU-0::0"),)),
        {WHOLE: ("OK", 7, 7, 0.0)},
    ),
    "replicas with one held and the other GPU lost": (
        shared(a_pod("a"), listed=(a_listed_pod("a", "GPU-0::0"),), gpus=[a_lost_gpu(1)]),
        {WHOLE: ("OVER", 0, 3, 4 / 7)},
    ),
    # A14: free is what nobody holds under any name, and what nobody waits for under any name. Strictly one name may give a
    # unit away: of two that admit it the second would be a promise of what the first has given (design.md section 3).
    "two names over one GPU, nobody holds": (
        two_names(),
        {WHOLE: ("OVER", 2, 2, 0.0), SHARE: ("OVER", 0, 2, 1.0)},
    ),
    "two names over one GPU, one holds": (
        two_names(a_pod("a"), listed=A_ON_0),
        {WHOLE: ("OVER", 1, 1, 0.0), SHARE: ("OVER", 0, 1, 1.0)},
    ),
    "two names over one GPU, one waits": (
        two_names(a_pod("a")),
        {WHOLE: ("OVER", 1, 1, 0.0), SHARE: ("OVER", 0, 1, 1.0)},
    ),
    "a whole GPU is waited for where replicas of it are promised": (
        two_names(a_pod("a"), share=("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")),
        {WHOLE: ("OVER", 1, 1, 0.0), SHARE: ("OVER", 0, 2, 1.0)},
    ),
    "held under a name that is promised no more": (
        two_names(
            a_pod("a", resource="vendor.example/old"),
            listed=(a_listed_pod("a", "GPU-0", resource="vendor.example/old"),),
            share=(),
        ),
        # One of the two that may be picked is somebody's. The old name promises nothing, and so promises nothing wrong.
        {WHOLE: ("OVER", 0, 1, 0.5), "vendor.example/old": ("OK", 0, 0, 0.0)},
    ),
    # Two pods of one name: the checkpoint's UID holds, the other waits; undecided, both count.
    "twins, the checkpoint decides": (
        node(*TWINS, listed=A_ON_0, kubelet=decided("uid-a2"), gpus=[a_used_gpu(5)]),
        {WHOLE: ("CONTENDED", 0, 5, 1 / 7)},
    ),
    "twins, nothing decides": (
        node(*TWINS, listed=A_ON_0, gpus=[a_used_gpu(5)]),
        {WHOLE: ("CONTENDED", 0, 5, 1 / 7)},
    ),
    "twins, a process is one's and the other still waits": (
        node(*TWINS, listed=A_ON_0, gpus=[a_used_gpu(0, OF_A), a_used_gpu(5)]),
        {WHOLE: ("CONTENDED", 0, 5, 1 / 7)},
    ),
    # E4 within its time with E5 beyond it: the terminating pod's GPU cannot be picked, the foreign one can.
    "a terminating pod and a foreign process elsewhere": (
        node(a_pod("a", deletion_at=builders.after(-10)), listed=A_ON_0, gpus=[a_used_gpu(1)]),
        {WHOLE: ("CONTENDED", 0, 6, 1 / 7)},
    ),
    # A5 under a marker: TRANSIENT either way, and nothing starts.
    "a kubelet restart during maintenance": (
        node(
            ids=(),
            kubelet={"started_at": Known(builders.after(-30))},
            node_object=builders.a_node_object({WHOLE: 0}, labels=PENDING),
        ),
        {WHOLE: ("TRANSIENT", 0, 0, 0.0)},
    ),
    # S2, S4: absent is not 0 and yet the scheduler has nothing; a 0 that says OK would explain nothing.
    "a Node without the key and a full kubelet": (
        node(node_object=builders.a_node_object({})),
        {WHOLE: ("UNDER", 0, 0, 0.0)},
    ),
    "a Node that says 0 of 0 and a full kubelet": (
        node(node_object=builders.a_node_object({WHOLE: 0})),
        {WHOLE: ("UNDER", 0, 0, 0.0)},
    ),
    # Ambiguous: S4 would say UNDER; E7's detection (GA = cap > alloc, steady) fits to the letter, and stands.
    "a Node that says 0 of 8 and a full kubelet": (
        node(node_object=builders.a_node_object({WHOLE: (8, 0)})),
        {WHOLE: ("OVER", 0, 0, 0.0)},
    ),
    # A6: admit from GA while the Node's figure is the old one.
    "allocatable flashes after a kubelet start and three are lost": (
        node(
            ids=EIGHT[:5], kubelet={"started_at": Known(builders.after(-10))}, gpus=[a_lost_gpu(n) for n in (5, 6, 7)]
        ),
        {WHOLE: ("TRANSIENT", 5, 5, 0.0)},
    ),
    # H2: null, not "no pods" and not 0.
    "List too large and one lost": (unlisted(node(gpus=[a_lost_gpu(3)])), {WHOLE: BLIND}),
    "GetAllocatableResources unreadable": (
        node(kubelet={"allocatable": Unknown("Unimplemented")}),
        {WHOLE: BLIND},
    ),
    "pods unreadable and a foreign process": (
        dataclasses.replace(node(gpus=[a_used_gpu(1)]), pods=Unknown("Unavailable")),
        {WHOLE: BLIND},
    ),
    # E3 needs |GA - List|: with List unread the kubelet's "2 available" accuses nobody of a leak.
    "a full node's rejections while List is unreadable": (
        unlisted(node(rejections=LEAKS)),
        {WHOLE: BLIND},
    ),
    "a leaking ledger and one lost": (
        node(rejections=LEAKS, gpus=[a_lost_gpu(3)]),
        {WHOLE: ("BLOCKED", 0, 2, 1 / 8)},
    ),
    # A required plane is NVML per device; design.md section 3 makes the resource's numbers null, not that device's share.
    "one GPU with an error code that nobody knows": (node(gpus=[a_lost_gpu(3, "UNKNOWN")]), {WHOLE: BLIND}),
    "NVML lists nothing and the kubelet eight": (
        node(nvml=Known(planes.Nvml(devices=()))),
        {WHOLE: ("OVER", 0, 0, 1.0)},
    ),
    "a GPU that hangs and is held": (
        node(a_pod("a"), listed=A_ON_0, gpus=[a_lost_gpu(0, "TIMEOUT")]),
        {WHOLE: ("OVER", 7, 7, 0.0)},
    ),
    "a GPU that hangs and is free": (
        node(a_pod("a"), listed=A_ON_0, gpus=[a_lost_gpu(1, "TIMEOUT")]),
        {WHOLE: ("OVER", 0, 6, 1 / 7)},
    ),
    # w: a bound pod that nobody sees takes a device; one seen by its process has taken it.
    "two units wait and one GPU is lost": (
        node(a_pod("a", units=2, phase=kube.PodPhase.PENDING), gpus=[a_lost_gpu(3)]),
        {WHOLE: ("OVER", 0, 5, 1 / 8)},
    ),
    "a pod seen by its process and a foreign one elsewhere": (
        node(a_pod("a"), gpus=[a_used_gpu(2, OF_A), a_used_gpu(3)]),
        {WHOLE: ("CONTENDED", 0, 6, 1 / 8)},
    ),
    # E1: a finished pod holds nothing, whatever List says; its GPU is lost and can therefore be picked.
    "a finished pod in List on a lost GPU": (
        node(a_pod("a", phase=kube.PodPhase.FAILED), listed=A_ON_0, gpus=[a_lost_gpu(0)]),
        {WHOLE: ("OVER", 0, 7, 1 / 8)},
    ),
    "one without its fabric and one lost": (
        node(gpus=[a_gpu(0, fabric=FABRIC_DOWN), a_lost_gpu(1)]),
        {WHOLE: ("OVER", 0, 6, 2 / 8)},
    ),
    # C11: as many new ones of the promised profile; C1: fewer. Only ids that NVML shows count in both.
    "one MIG UUID of three rotated": (
        sliced(ids=("MIG-0-0", "MIG-0-1", "MIG-9-9")),
        {MIG: ("OVER", 0, 2, 1 / 3)},
    ),
    "two MIG UUIDs gone and one held": (
        sliced(
            a_pod("a", resource=MIG),
            listed=(a_listed_pod("a", "MIG-0-0", resource=MIG),),
            profiles=("1g.10gb", "3g.40gb"),
            ids=("MIG-0-0", "MIG-9-8", "MIG-9-9"),
        ),
        {MIG: ("WRONG_SHAPE", 0, 0, 1.0)},
    ),
    # H5. GPU-7 is then also not advertised (UNDER); OVER is the worse.
    "an id that joins to nothing under the vendor's own name": (
        node(ids=(*EIGHT[:7], "odd-7")),
        {WHOLE: ("OVER", 0, 7, 1 / 8)},
    ),
    "another vendor's ids are nobody's business": (
        a_node(
            2,
            kubelet=builders.a_kubelet({WHOLE: EIGHT[:2], "example.com/fpga": ("x-1",)}),
            node_object=builders.a_node_object({WHOLE: 2, "example.com/fpga": 1}),
        ),
        {WHOLE: ("OK", 2, 2, 0.0)},
    ),
    # D1 is worse than BLIND: 0, not null (design.md section 3).
    "driver mismatch and List too large": (
        unlisted(node(nvml=Unknown("LIB_RM_VERSION_MISMATCH"))),
        {WHOLE: ("BLOCKED", 0, 0, 0.0)},
    ),
    "NVML closed for maintenance and a pod waits": (
        node(a_pod("a"), nvml=Unknown("MAINTENANCE")),
        {WHOLE: ("TRANSIENT", 0, 0, 0.0)},
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_numbers_of(name):
    observation, expected = ROWS[name]
    assert builders.numbers_of(builders.reports_of(observation, SETTLED)[-1]) == expected


def test_a_disagreement_is_transient_at_first_and_its_numbers_do_not_wait():
    zero = node(node_object=builders.a_node_object({WHOLE: 0}))
    lost = node(gpus=[a_lost_gpu(1), a_used_gpu(2)])
    assert builders.numbers_of(builders.reports_of(zero, (0,))[-1]) == {WHOLE: ("TRANSIENT", 0, 0, 0.0)}
    assert builders.numbers_of(builders.reports_of(lost, (0,))[-1]) == {WHOLE: ("TRANSIENT", 0, 6, 2 / 8)}


def test_without_an_api_server_the_sets_decide_alone():
    """No w, no requests: |free| is admitted, and a fault is one all the same."""
    alone = a_node(api=False, kubelet=builders.a_kubelet({WHOLE: EIGHT}, A_ON_0))
    lost = with_gpus(alone, a_lost_gpu(1))
    assert builders.numbers_of(builders.reports_of(alone, SETTLED, api=False)[-1]) == {WHOLE: ("OK", 7, 7, 0.0)}
    assert builders.numbers_of(builders.reports_of(lost, SETTLED, api=False)[-1]) == {WHOLE: ("OVER", 0, 6, 1 / 7)}


def test_a_lost_gpu_takes_all_its_instances_with_it():
    """B2, not C1: the instances are known from the sample before. Without one only the cause would be another."""
    ids = tuple(f"MIG-{number}-{place}" for number in (0, 1) for place in range(3))
    cut = a_node(
        nvml=Known(planes.Nvml(devices=tuple(a_mig_gpu(number, ("1g.10gb",) * 3) for number in (0, 1)))),
        kubelet=builders.a_kubelet({MIG: ids}, (a_listed_pod("a", "MIG-0-0", resource=MIG),)),
        node_object=builders.a_node_object({MIG: 6}),
        pods=Known((a_pod("a", resource=MIG),)),
    )
    history, report = judge(History(), cut, Policy(), api_server=True)
    assert builders.numbers_of(report) == {MIG: ("OK", 5, 5, 0.0)}
    for at in (20, 40, 60):
        lost = dataclasses.replace(with_gpus(cut, a_lost_gpu(1)), taken_at=builders.after(at))
        history, report = judge(history, lost, Policy(), api_server=True)
    assert builders.numbers_of(report) == {MIG: ("OVER", 0, 2, 3 / 5)}
    assert {finding.cause for finding in report.resources[MIG].findings} == {"GpuLostStillPromised"}
