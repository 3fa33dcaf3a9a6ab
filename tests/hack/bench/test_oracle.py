"""The oracle of bench-failover: it must see what it is there to see."""

import pytest
from lightkube.models import core_v1 as models
from lightkube.models import meta_v1
from lightkube.resources import core_v1 as core

from hack.bench import oracle as oracles
from hack.bench.oracle import Oracle, Seen


def seen(oracle, uid, gang="g", node="", *, let_go=False, over=False, reason=""):
    oracle.see(uid, Seen(gang=gang, node=node, is_let_go=let_go, is_over=over), reason=reason, now=1.0)


def an_oracle(**sizes):
    oracle = Oracle(2)
    oracle.sizes.update(sizes or {"g": 2})
    return oracle


def run_through(oracle, uid, node, gang="g"):
    seen(oracle, uid, gang)
    seen(oracle, uid, gang, let_go=True)
    seen(oracle, uid, gang, node, let_go=True)
    seen(oracle, uid, gang, node, let_go=True, over=True)


def test_a_gang_that_ran_whole_is_neither_lost_nor_double():
    oracle = an_oracle()
    for uid in ("a", "b"):
        run_through(oracle, uid, "n1")
        seen(oracle, uid, node="n1", let_go=True, over=True)
        oracle.gone(uid)
    assert (oracle.double, oracle.lost(), len(oracle.let_go)) == ([], [], 2)


def test_more_pods_on_a_node_than_it_has_is_a_double_admission():
    oracle = an_oracle(g=2, h=1)
    seen(oracle, "a", node="n1", let_go=True)
    seen(oracle, "b", node="n1", let_go=True)
    assert not oracle.double
    seen(oracle, "c", "h", node="n1", let_go=True)
    assert oracle.double == ["n1: 3 of 2, the last for h"]


def test_a_pod_whose_place_was_given_back_is_not_counted_any_more():
    oracle = an_oracle(g=2, h=1)
    seen(oracle, "a", node="n1", let_go=True)
    seen(oracle, "b", node="n1", let_go=True)
    seen(oracle, "a", node="n1", let_go=True, over=True)
    seen(oracle, "c", "h", node="n1", let_go=True)
    assert not oracle.double


def test_a_pod_that_found_no_device_is_a_double_admission_and_has_not_run():
    oracle = an_oracle(g=1)
    seen(oracle, "a", node="n1", let_go=True)
    seen(oracle, "a", node="n1", let_go=True, over=True, reason="UnexpectedAdmissionError")
    assert oracle.double == ["g on n1: UnexpectedAdmissionError"]
    assert oracle.lost() == ["g: 0 of 1 pods ran"]


def test_half_a_gang_is_a_lost_gang():
    oracle = an_oracle()
    run_through(oracle, "a", "n1")
    seen(oracle, "b")
    assert oracle.lost() == ["g: 1 of 2 pods ran"]


def a_pod(gpus=1, node="", pin=None, gated=False, phase="Pending"):
    resources = models.ResourceRequirements(limits={oracles.GPU: str(gpus)})
    spec = models.PodSpec.from_dict(
        {
            "containers": [models.Container(name="main", resources=resources).to_dict()],
            "nodeName": node or None,
            "schedulingGates": [{"name": "muster.dev/gang"}] if gated else None,
            **(pin or {}),
        }
    )
    metadata = meta_v1.ObjectMeta(name="p", labels={"muster.dev/gang": "g"})
    return core.Pod(metadata=metadata, spec=spec, status=models.PodStatus(phase=phase))


def by_affinity(key, *nodes, form="matchExpressions"):
    term = {form: [{"key": key, "operator": "In", "values": list(nodes)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


BY_SELECTOR = {"nodeSelector": {oracles.HOSTNAME: "n1"}}


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        (a_pod(pin=BY_SELECTOR), "n1"),
        (a_pod(pin=by_affinity(oracles.HOSTNAME, "n1")), "n1"),
        (a_pod(pin=by_affinity("metadata.name", "n1", form="matchFields")), "n1"),
        (a_pod(pin=by_affinity(oracles.HOSTNAME, "n1", "n2")), ""),
        (a_pod(pin=by_affinity("zone", "n1")), ""),
        (a_pod(node="n2", pin=BY_SELECTOR), "n2"),
        (a_pod(), ""),
    ],
)
def test_a_pod_is_owed_its_gpus_where_it_is_or_must_go(pod, node):
    seen = oracles.sight(pod)
    assert (seen.node, seen.promised, seen.gang) == (node, node, "g")


def test_what_is_held_or_over_is_owed_nothing():
    for pod in (
        a_pod(pin=BY_SELECTOR, gated=True),
        a_pod(node="n1", phase="Succeeded"),
        a_pod(node="n1", phase="Failed"),
    ):
        assert oracles.sight(pod).promised == ""


def test_two_leases_on_one_gpu_are_seen_though_the_scheduler_binds_one_pod_only():
    oracle = Oracle(8)
    for uid, pod in (("a", a_pod(8, pin=BY_SELECTOR)), ("b", a_pod(1, pin=BY_SELECTOR))):
        oracle.see(uid, oracles.sight(pod), now=1.0)
    oracle.see("a", oracles.sight(a_pod(8, node="n1", pin=BY_SELECTOR)), now=2.0)
    assert oracle.double == ["n1: 9 of 8, the last for g"], "told once, while the second is bound nowhere"


def test_a_pod_that_was_deleted_is_owed_nothing():
    oracle = Oracle(8)
    oracle.see("a", oracles.sight(a_pod(8, pin=BY_SELECTOR)), now=1.0)
    oracle.gone("a")
    oracle.see("b", oracles.sight(a_pod(8, pin=BY_SELECTOR)), now=2.0)
    assert (oracle.double, oracle.unpinned) == ([], 0)


def test_a_pod_let_go_without_a_pin_is_said():
    oracle = Oracle(8)
    oracle.see("a", oracles.sight(a_pod()), now=1.0)
    assert oracle.unpinned == 1
