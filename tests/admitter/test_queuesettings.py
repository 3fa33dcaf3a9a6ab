"""The queue's settings reach the policy, or are refused with every problem."""

import dataclasses

import pytest

from admitter import config
from admitter.model.decision import NetworkLevel
from admitter.model.nodefacts import KubeletPolicies
from hack import pki
from muster import settings


@pytest.fixture
def files(tmp_path):
    issued = pki.create(tmp_path).issue_admitter()
    return {f"tls_{field.name}": str(getattr(issued, field.name)) for field in dataclasses.fields(issued)}


def test_they_reach_the_policy(files):
    settled = config.from_flags(
        files
        | {
            "network_levels": "rack=topology.example.com/rack, zone=topology.kubernetes.io/zone",
            "namespace_limits": "team-a=64,*=8",
            "reserved_share": "0.25",
            "hold_seconds": "60",
        },
        {},
    )
    assert settled.policy.levels == (
        NetworkLevel(name="rack", label="topology.example.com/rack"),
        NetworkLevel(name="zone", label="topology.kubernetes.io/zone"),
    )
    queue = settled.policy.queue
    assert dict(queue.namespace_limits) == {"team-a": 64, "*": 8}
    assert (queue.reserved_share, queue.hold_seconds, queue.ageing_seconds) == (0.25, 60, 86_400)


def test_without_them_there_is_no_network_and_no_limit(files):
    policy = config.from_flags(files, {}).policy
    assert (policy.levels, dict(policy.queue.namespace_limits)) == ((), {})


def test_every_problem_is_named(files):
    wrong = {
        "network_levels": "rack,node=x/y,a=l,a=m",
        "namespace_limits": "team-a=many,b=1,b=2",
    }
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(files | wrong, {})
    text = "\n".join(caught.value.problems)
    for part in ("'rack' is not NAME=LABEL", "'node' is taken", "'a' is taken", "'team-a=many'", "'b' comes twice"):
        assert part in text


def test_what_the_kubelets_refuse_is_a_setting_and_a_wrong_one_is_named(files):
    settled = config.from_flags(files | {"topology_policy_label": "pool/numa", "topology_policy": "restricted"}, {})
    assert settled.kubelet_policies == KubeletPolicies(label="pool/numa", otherwise="restricted")
    assert config.from_flags(files, {}).kubelet_policies == KubeletPolicies()
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(files | {"topology_policy_label": "a b", "topology_policy": "strict"}, {})
    assert [problem.split(":")[0] for problem in "\n".join(caught.value.problems).split("\n")] == [
        "--topology-policy-label",
        "--topology-policy",
    ]
