"""A node's slice: whole, with rejections that outlive their pods."""

import datetime

import pytest

from admitter.core import slices
from admitter.model.cluster import KubeNode, KubePod, KubeSlice, Owner, Told
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown

NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
NO_DRA = Known(kube.Dra())


def a_pod(name="p", **fields):
    return KubePod(
        **{
            "uid": f"uid-{name}",
            "namespace": "team",
            "name": name,
            "resource_version": "1",
            "node": "n1",
            "phase": kube.PodPhase.RUNNING,
            "reported_at": NOW,
            **fields,
        }
    )


def a_rejected(name="p", **fields):
    return a_pod(
        name, **{"phase": kube.PodPhase.FAILED, "reason": "UnexpectedAdmissionError", "message": "no", **fields}
    )


def a_node(**labels):
    content = kube.NodeObject(capacity={}, allocatable={}, labels=labels)
    return KubeNode(name="n1", uid="u", resource_version="1", object=content)


def test_a_slice_has_the_node_its_pods_and_what_dra_offers():
    owner = Owner(kind="Job", name="j", uid="x", is_controller=True)
    pod = a_pod(requests={"cpu": 500, "nvidia.com/gpu": 2}, owners=(owner,))
    content = slices.assemble(a_node(**{"nvidia.com/mig.config": "all-1g.10gb"}), (pod,), (), NO_DRA)
    assert content.pods.value[0].requests == {"nvidia.com/gpu": 2}
    assert content.pods.value[0].owner_kind == "Job"
    assert content.desired_mig.value.name == "all-1g.10gb"
    assert content.features == {"DRAExtendedResource": False}
    assert content.plugins == Known(())


def test_a_node_that_is_not_there_is_unknown():
    assert isinstance(slices.assemble(None, (), (), NO_DRA).node_object, Unknown)


def test_a_rejection_outlives_its_pod_and_ends_after_its_time():
    known = slices.remember({}, (a_rejected(),), NOW)
    assert [item.reason for item in known.values()] == ["UnexpectedAdmissionError"]
    assert slices.remember(known, (), NOW + slices.KEPT) == known
    assert slices.remember(known, (), NOW + slices.KEPT + datetime.timedelta(seconds=1)) == {}


def test_the_first_sight_dates_a_rejection():
    known = slices.remember({}, (a_rejected(),), NOW)
    later = a_rejected(reported_at=NOW + datetime.timedelta(minutes=5))
    assert slices.remember(known, (later,), NOW) == known


def test_an_evicted_pod_was_not_rejected():
    assert slices.rejection(a_rejected(reason="Evicted")) is None
    assert slices.rejection(a_rejected(node="")) is None
    assert slices.rejection(a_rejected(reason="OutOfnvidia.com/gpu")) is not None


def test_rejections_are_bounded():
    pods = [a_rejected(f"p{index}") for index in range(3 * slices.MOST_KEPT)]
    assert len(slices.remember({}, pods, NOW)) == slices.MOST_KEPT


@pytest.mark.parametrize("reason", ["NodeAffinity", "OutOfcpu", "OutOfnvidia.com/gpu", "TopologyAffinityError"])
def test_no_other_refusal_pushes_out_an_admission_error(reason):
    """A tenant can have any number of them, by binding its pods itself; among admission errors the newest stay."""
    later = NOW + datetime.timedelta(minutes=1)
    flood = [a_rejected(f"n{index}", reason=reason, reported_at=later) for index in range(3 * slices.MOST_KEPT)]
    proof = slices.remember({}, (a_rejected("proof"),), NOW)
    known = slices.remember(proof, flood, later)
    assert known["uid-proof"] == proof["uid-proof"]
    assert len(known) == slices.MOST_KEPT
    for pod in flood:
        known = slices.remember(known, (pod,), later)
    assert known["uid-proof"] == proof["uid-proof"]
    newer = [a_rejected(f"p{index}", reported_at=later) for index in range(slices.MOST_KEPT)]
    assert {item.at for item in slices.remember(known, newer, later).values()} == {later}


def test_a_plugin_pod_says_how_it_fares():
    waiting = kube.Container(
        name="c", state=kube.ContainerState.WAITING, reason="CrashLoopBackOff", message="back-off 5m0s"
    )
    pod = a_pod(
        "nvidia-device-plugin-x",
        serves_devices=True,
        images=("registry/nvidia/k8s-device-plugin:v0.17.0",),
        restarts=7,
        containers=(waiting,),
        last_words="Error, exit 1: no devices",
    )
    (plugin,) = slices.assemble(a_node(), (pod,), (), NO_DRA).plugins.value
    assert (plugin.restarts, plugin.crash_looping) == (Known(7), Known(value=True))
    assert plugin.message == "Error, exit 1: no devices; CrashLoopBackOff: back-off 5m0s"
    assert (plugin.resource_prefix, plugin.version) == ("nvidia.com", "v0.17.0")


def test_somebody_elses_plugin_is_not_ours():
    pod = a_pod("rdma-shared-dp", serves_devices=True, images=("registry/rdma:v1",))
    assert slices.assemble(a_node(), (pod,), (), NO_DRA).plugins == Known(())


def test_dra_that_cannot_be_read_says_why():
    problem = Unknown("NotReadable", "may not list")
    assert slices.offered((), (), problem) == problem
    offered = slices.offered(
        (KubeSlice(name="s", node="n1", content=kube.DraSlice(driver="gpu.nvidia.com", devices=())),),
        (kube.DeviceClass(name="plain"), kube.DeviceClass(name="gpu", extended_resource="nvidia.com/gpu")),
        None,
    )
    assert [item.name for item in offered.value.device_classes] == ["gpu"]
    assert [item.driver for item in offered.value.slices] == ["gpu.nvidia.com"]


def test_a_slice_says_how_its_plugin_shares_and_how_its_gpus_should_be_cut():
    documents = {
        ("gpu", "layouts"): {
            "config.yaml": {
                "mig-configs": {"half": [{"devices": [0], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}]}
            }
        }
    }
    manager = a_pod(
        "manager",
        namespace="gpu",
        manages_mig=True,
        told=Told(settings={"CONFIG_FILE": "/m/config.yaml"}, folders={"/m": "layouts"}),
    )
    plugin = a_pod(
        "nvidia-device-plugin", namespace="gpu", serves_devices=True, told=Told(settings={"MIG_STRATEGY": "mixed"})
    )
    node = a_node(**{"nvidia.com/mig.config": "half"})
    content = slices.assemble(node, (manager, plugin), (), NO_DRA, documents)
    assert content.plugins.value[0].config == {"migStrategy": "mixed"}
    assert content.desired_mig == Known(
        kube.DesiredMig(name="half", layout=(kube.MigLayout(gpus="0", profiles={"3g.40gb": 2}),))
    )
    # Without the right to read it, or on a node without the label, nothing is made up.
    assert slices.assemble(node, (manager,), (), NO_DRA).desired_mig.value.layout == ()
    assert slices.assemble(a_node(), (manager,), (), NO_DRA, documents).desired_mig == NOT_COLLECTED
