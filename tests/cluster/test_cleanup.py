"""`muster-admitter cleanup` on a real API server: all of ours goes, nothing of others, as often as it is called."""

import uuid

import pytest
from click.testing import CliRunner
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.cleanupcommand import command
from muster.model import labels
from muster.model.nodeconditions import FIELD_MANAGER, ConditionType

OTHERS = core_v1.Taint(key="example.com/team", value="blue", effect="NoSchedule")
OURS = core_v1.Taint(key=labels.UNTRUSTED.full, value="OVER", effect="NoSchedule")


@pytest.fixture
def written(client):
    """Return the names of two Nodes with conditions and taints of ours and of others."""
    names = sorted(f"clean-{uuid.uuid4().hex[:8]}" for _ in range(2))
    for name in names:
        client.create(
            core.Node(metadata=meta_v1.ObjectMeta(name=name), spec=core_v1.NodeSpec(taints=[OTHERS, OURS])),
            field_manager="test",
        )
        apply(client, name, FIELD_MANAGER, *ConditionType)
        apply(client, name, "npd", "KernelDeadlock")
    yield names
    for name in names:
        client.delete(core.Node, name)


def apply(client, name, manager, *types):
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"conditions": [{"type": str(kind), "status": "False", "reason": "R"} for kind in types]},
    }
    client.patch(core.NodeStatus, name, body, patch_type=PatchType.APPLY, field_manager=manager)


def run(cluster, *arguments):
    done = CliRunner().invoke(command, ["--kubeconfig", str(cluster.kubeconfig), *arguments])
    return done.exit_code, done.stdout.splitlines(), done.stderr


def on_node(client, name):
    node = client.get(core.Node, name)
    keys = {taint.key for taint in node.spec.taints if not taint.key.startswith("node.kubernetes.io/")}
    return {item.type for item in node.status.conditions}, keys


EVERYTHING = {*(kind.value for kind in ConditionType), "KernelDeadlock"}
CONDITIONS = "conditions GPUCapacityTruthful, GPUHealthy, MIGLayoutMatches"
TAINT = "taint muster.dev/untrusted=OVER"


def test_a_dry_run_says_what_it_would_do_and_does_nothing(cluster, client, written):
    code, lines, _ = run(cluster, "--dry-run")
    assert code == 0
    for name in written:
        assert f"node {name}: would remove {CONDITIONS}" in lines
        assert f"node {name}: would remove {TAINT}" in lines
        assert on_node(client, name) == (EVERYTHING, {OTHERS.key, OURS.key})


def test_all_of_ours_goes_and_a_second_call_finds_nothing(cluster, client, written):
    code, lines, _ = run(cluster)
    assert (code, lines[-1]) == (0, "cleanup: 2 nodes, 0 left alone")
    for name in written:
        assert f"node {name}: removed {CONDITIONS}" in lines
        assert f"node {name}: removed {TAINT}" in lines
        assert on_node(client, name) == ({"KernelDeadlock"}, {OTHERS.key})
    assert run(cluster)[:2] == (0, ["cleanup: 0 nodes, 0 left alone"])


def test_a_condition_that_somebody_else_owns_with_us_stays_and_is_named(cluster, client, written):
    apply(client, written[0], "npd", "KernelDeadlock", "GPUHealthy")
    code, lines, _ = run(cluster)
    assert (code, lines[-1]) == (1, "cleanup: 2 nodes, 1 left alone")
    assert f"node {written[0]}: removed conditions GPUCapacityTruthful, MIGLayoutMatches" in lines
    assert f"node {written[0]}: condition GPUHealthy belongs to another writer" in lines
    assert on_node(client, written[0]) == ({"GPUHealthy", "KernelDeadlock"}, {OTHERS.key})


def test_conditions_whose_owner_somebody_has_wiped_go_too(cluster, client, written):
    for name in written:
        client.patch(core.Node, name, {"metadata": {"managedFields": [{}]}}, patch_type=PatchType.MERGE)
    assert client.get(core.Node, written[0]).metadata.managedFields is None
    code, lines, _ = run(cluster)
    assert (code, lines[-1]) == (0, "cleanup: 2 nodes, 0 left alone")
    assert on_node(client, written[0]) == ({"KernelDeadlock"}, {OTHERS.key})


def test_who_has_no_rights_is_told_so(cluster):
    nobody = cluster.kubeconfig.parent / "nobody.kubeconfig"
    done = CliRunner().invoke(command, ["--kubeconfig", str(nobody)])
    assert done.exit_code == 1
    assert "nodes is forbidden" in done.stderr
