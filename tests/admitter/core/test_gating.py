"""Which new pods get the gate, and that every review is answered."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import gating
from admitter.core.gating import Rule
from muster.model import labels

GATE = labels.GANG.full


def a_pod(*, marks=None, gates=None, limits=None, owner="", node=""):
    spec = {"containers": [{"name": "main", "resources": {"limits": limits or {}}}]}
    if gates is not None:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if node:
        spec["nodeName"] = node
    owners = [{"kind": owner, "name": "x"}] if owner else []
    return {"metadata": {"labels": marks or {}, "ownerReferences": owners}, "spec": spec}


OURS = {GATE: "train"}
GPU = {"nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("pod", "rule", "is_ours"),
    [
        (a_pod(marks=OURS), Rule.LABELLED, True),
        (a_pod(limits=GPU), Rule.LABELLED, False),
        (a_pod(limits=GPU), Rule.MANAGED, True),
        (a_pod(limits={"nvidia.com/mig-1g.10gb": "1"}), Rule.MANAGED, True),
        (a_pod(limits={"cpu": "1"}), Rule.MANAGED, False),
        (a_pod(marks=OURS, gates=[GATE]), Rule.LABELLED, False),
        (a_pod(marks=OURS, owner="DaemonSet"), Rule.LABELLED, False),
        (a_pod(marks=OURS, owner="Job"), Rule.LABELLED, True),
        (a_pod(marks=OURS, node="n1"), Rule.LABELLED, False),
        ({}, Rule.MANAGED, False),
    ],
)
def test_whose_pods_are_ours(pod, rule, is_ours):
    assert gating.is_ours(pod, rule) is is_ours


@pytest.mark.parametrize("gates", [None, [], ["example.com/quota"], ["a/b", "c/d"]])
def test_the_gate_goes_beside_the_others(gates):
    pod = a_pod(marks=OURS, gates=gates)
    answer = gating.answer({"request": {"uid": "u1", "object": pod}}, Rule.LABELLED)["response"]
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == ("u1", True, "JSONPatch")
    (step,) = json.loads(base64.b64decode(answer["patch"]))
    # As the API server applies it (RFC 6902).
    found = pod["spec"].get("schedulingGates", [])
    after = [*found, step["value"]] if step["path"].endswith("/-") else step["value"]
    assert step["path"].endswith("/-") is bool(found), "there is no end of a list that is not there"
    assert [gate["name"] for gate in after] == [*(gates or []), GATE]
    assert not gating.is_ours({**pod, "spec": {**pod["spec"], "schedulingGates": after}}, Rule.LABELLED)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["request", "object", "metadata", "spec", "labels", "containers", "schedulingGates", GATE]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(review=json_values, rule=st.sampled_from(Rule))
def test_whatever_is_asked_is_allowed(review, rule):
    answer = gating.answer(review, rule)
    assert answer["response"]["allowed"] is True
    assert answer["kind"] == "AdmissionReview"
