"""What a bypass would do: only what is Muster's, by UID, and nothing twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli import bypassplan
from muster.cli.bypassplan import Scope

ALL = Scope()
GATE = "muster.dev/gang"


def a_pod(name="p", *, gates=(GATE,), gang="", node="", annotations=None, selector=None):
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"uid-{name}",
            "labels": {GATE: gang} if gang else {},
            "annotations": annotations or {},
        },
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            **({"nodeName": node} if node else {}),
            **({"nodeSelector": selector} if selector else {}),
        },
    }


def a_job(name="train", *, annotations=None, gates=(), finished=False):
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}", "annotations": annotations or {}},
        "spec": {"suspend": True, "template": {"spec": {"schedulingGates": [{"name": gate} for gate in gates]}}},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]} if finished else {},
    }


@pytest.mark.parametrize(
    ("target", "scope"),
    [
        ("all", Scope()),
        ("namespace/ml", Scope(namespace="ml")),
        ("gang/ml/job.train", Scope(namespace="ml", gang="job.train")),
        ("", None),
        ("gang/ml", None),
        ("namespace/", None),
        ("namespace/a/b", None),
        ("everything", None),
    ],
)
def test_scopes(target, scope):
    assert bypassplan.scope_of(target) == scope


@given(gates=st.lists(st.sampled_from([GATE, "example.com/quota", "kueue.x-k8s.io/admission"]), unique=True))
def test_our_gate_is_lifted_wherever_it_stands_and_no_other(gates):
    steps = list(bypassplan.ungated([a_pod(gates=gates)], ALL))
    assert len(steps) == (GATE in gates)
    for step in steps:
        assert step.request.body["spec"] == {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
        assert step.request.body["metadata"] == {"uid": "uid-p"}
        assert ("still held by" in step.text) is (len(gates) > 1)


def test_a_gang_is_let_go_by_itself():
    pods = [a_pod("a", gang="train"), a_pod("b", gang="other"), a_pod("c")]
    scope = Scope(namespace="ml", gang="train")
    assert [step.about for step in bypassplan.ungated(pods, scope)] == ["pod ml/a"]
    assert [step.about for step in bypassplan.ungated(pods, Scope(namespace="ml", gang="pod.c"))] == ["pod ml/c"]


def test_only_what_muster_suspended_is_resumed():
    jobs = [a_job("ours", annotations={"muster.dev/replan": "suspended"}), a_job("theirs")]
    (step,) = bypassplan.resumed("Job", jobs, ALL)
    assert step.about == "Job ml/ours"
    assert step.request.path == "/apis/batch/v1/namespaces/ml/jobs/ours"
    assert step.request.body == {
        "metadata": {"uid": "uid-ours", "annotations": {"muster.dev/replan": None}},
        "spec": {"suspend": False},
    }
    assert not list(bypassplan.resumed("Job", jobs, Scope(namespace="ml", gang="job.theirs")))
    assert len(list(bypassplan.resumed("Job", jobs, Scope(namespace="ml", gang="job.ours")))) == 1


def test_a_taint_is_removed_only_where_it_was_seen():
    ours = {"key": "muster.dev/untrusted", "value": "OVER", "effect": "NoSchedule"}
    other = {"key": "example.com/x", "effect": "NoExecute"}
    nodes = [
        {"metadata": {"name": "n1"}, "spec": {"taints": [other, ours]}},
        {"metadata": {"name": "n2"}, "spec": {"taints": [other]}},
        {"metadata": {"name": "n3"}, "spec": {}},
    ]
    (step,) = bypassplan.untainted(nodes)
    assert step.about == "node n1"
    assert step.request.body == [
        {"op": "test", "path": "/spec/taints/1", "value": ours},
        {"op": "remove", "path": "/spec/taints/1"},
    ]


def test_what_autoscalers_were_asked_is_taken_back_as_far_as_it_is_ours():
    keys = "cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"
    kept = {keys[0]: "true", keys[1]: "true", "muster.dev/kept": keys[1]}
    nodes = [
        {"metadata": {"name": "n1", "uid": "u1", "annotations": kept}},
        {"metadata": {"name": "n2", "uid": "u2", "annotations": {keys[0]: "true"}}},
        {"metadata": {"name": "n3", "uid": "u3"}},
    ]
    (step,) = bypassplan.unkept(nodes)
    assert step.about == "node n1"
    assert step.request.body == {"metadata": {"uid": "u1", "annotations": {"muster.dev/kept": None, keys[1]: None}}}


def test_what_puts_the_gate_on_is_deleted_by_name_and_uid():
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
    objects = [{"metadata": {"name": name, "uid": f"uid-{name}"}} for name in ("muster-gates", "somebody-elses")]
    (step,) = bypassplan.disabled(path, objects)
    assert step.request.method == "DELETE"
    assert step.request.path == f"{path}/muster-gates"
    assert step.request.body == {"preconditions": {"uid": "uid-muster-gates"}}


def test_what_stays_is_said():
    lease = {"muster.dev/lease": "t1-x-1"}
    pods = [
        a_pod("pinned", gates=(), annotations=lease, selector={"kubernetes.io/hostname": "n1"}),
        a_pod("bound", gates=(), annotations=lease, node="n1"),
        a_pod("held", annotations=lease),
        a_pod("plain", gates=()),
    ]
    (note,) = bypassplan.pinned(pods, ALL)
    assert note.startswith("pod ml/pinned is pinned to n1")
    jobs = [a_job("again", gates=(GATE,)), a_job("done", gates=(GATE,), finished=True), a_job("plain")]
    (note,) = bypassplan.still_gated("Job", jobs, ALL)
    assert note.startswith("Job ml/again has the gate in its template")
