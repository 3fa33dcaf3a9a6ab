"""What a profile cannot read is Unknown or absent, and never an empty list that looks read."""

import dataclasses

import pytest

from agent.model import planes, privilege
from agent.model.privilege import Privilege
from hack import check_manifests
from hack.matrix import captures, profiles
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown
from tests import builders

pytestmark = pytest.mark.timeout(900)
"""The first test that asks replays every capture; on a busy machine that takes its time."""

LESS = [profile for profile in profiles.PROFILES if profile.lacks]


def known_at(value, path):
    """Yield the readings at a path that are Known, through readings and lists."""
    match value:
        case Known(inner):
            yield from known_at(inner, path) if path else (value,)
        case tuple() if path:
            for item in value:
                yield from known_at(item, path)
        case _ if path and not isinstance(value, Unknown):
            yield from known_at(getattr(value, path[0]), path[1:])


def test_full_privilege_changes_nothing_and_comes_first():
    full = profiles.PROFILES[0]
    node = builders.a_node()
    assert (full.name, full.lacks, profiles.seen_by(full.lacks, node)) == ("full", frozenset(), node)


@pytest.mark.parametrize("profile", LESS, ids=lambda profile: profile.name)
def test_nothing_that_a_profile_lacks_is_read(profile):
    exempt = {"device_nodes", "nvml.devices.mig"}  # own device files, and the mode of GPUs that are not cut
    paths = [path for path, needed in privilege.OF_FIELD.items() if needed in profile.lacks and path not in exempt]
    if Privilege.NODE_SLICE in profile.lacks:
        paths.remove("plugins")  # the process half is the reader's
    for capture in captures.load_all():
        for observation in capture.observations:
            seen = profiles.seen_by(profile.lacks, observation)
            for path in paths:
                assert list(known_at(seen, tuple(path.split(".")))) == [], (capture.name, path)


def test_without_the_slice_a_plugin_keeps_what_its_process_tells():
    plugin = builders.a_plugin(pod="gpu/plugin-1", restarts=Known(3), message="no devices")
    seen = profiles.seen_by(frozenset({Privilege.NODE_SLICE}), builders.a_node(plugins=Known((plugin,))))
    assert seen.plugins == Known((builders.a_plugin(),))
    assert (seen.node_object, seen.pods) == (NOT_COLLECTED, NOT_COLLECTED)


def test_without_the_slice_a_node_without_a_plugin_is_one_whose_process_is_not_there():
    seen = profiles.seen_by(frozenset({Privilege.NODE_SLICE}), builders.a_node(plugins=Known(())))
    assert seen.plugins == Known((kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(False)),))


def test_without_either_half_nobody_knows_of_a_plugin():
    lacks = frozenset({Privilege.NODE_SLICE, Privilege.HOST_PID})
    assert isinstance(profiles.seen_by(lacks, builders.a_node()).plugins, Unknown)


def test_injected_device_files_are_there_whatever_the_host_lost():
    missing = planes.DeviceNode(path="/dev/nvidia3", present=False, detail="gone")
    seen = profiles.seen_by(frozenset({Privilege.HOST_FILES}), builders.a_node(device_nodes=Known((missing,))))
    assert seen.device_nodes == Known((dataclasses.replace(missing, present=True, detail=""),))


def test_without_the_mig_monitor_only_gpus_in_mig_mode_are_refused():
    devices = (builders.a_gpu(0), builders.a_mig_gpu(1, ("1g.10gb",)))
    node = builders.a_node(2, nvml=Known(planes.Nvml(devices=devices)))
    seen = profiles.seen_by(frozenset({Privilege.MIG_MONITOR}), node)
    assert [gpu.mig for gpu in seen.nvml.value.devices] == [devices[0].mig, Unknown("NO_PERMISSION")]


def test_a_welcome_without_a_cluster_names_no_api_server():
    assert profiles.has_api_server(frozenset(), capture_has=True)
    assert not profiles.has_api_server(frozenset(), capture_has=False)
    assert not profiles.has_api_server(frozenset({Privilege.NODE_SLICE}), capture_has=True)


MANIFESTS = {
    "full": "daemonset/base",
    "no-host-pid": "daemonset/profiles/no-host-pid",
    "injection-host-pid": "daemonset/profiles/injection-host-pid",
    "injection": "daemonset/profiles/injection",
    "no-checkpoint": "daemonset/profiles/no-checkpoint",
    "no-api-server": "daemonset/profiles/no-api-server",
    "least": "daemonset/profiles/least",
}


def test_every_profile_can_be_deployed():
    assert MANIFESTS.keys() == {profile.name for profile in profiles.PROFILES}


@pytest.mark.parametrize("name", ["no-api-server", "least"])
def test_agents_alone_leave_nothing_of_the_admitter(name):
    objects = check_manifests.render(check_manifests.ROOT / MANIFESTS[name])
    assert sorted((item["kind"], item["metadata"]["name"]) for item in objects) == [
        ("DaemonSet", "muster-agent"),
        ("Namespace", "muster-system"),
        ("ServiceAccount", "muster-agent"),
    ]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_profile_is_what_its_manifests_grant(name):
    """Whoever takes a mount or a right out of them changes what is seen: it becomes another profile."""
    (profile,) = [item for item in profiles.PROFILES if item.name == name]
    objects = check_manifests.render(check_manifests.ROOT / MANIFESTS[name])
    (pod,) = [item["spec"]["template"]["spec"] for item in objects if item["kind"] == "DaemonSet"]
    assert granted(pod) == set(Privilege) - {Privilege.NONE} - profile.lacks


def granted(pod):
    containers = {container["name"]: container for container in pod["containers"]}
    reader, agent = containers["reader"], containers["agent"]
    mounts = {(name, item["mountPath"]) for name, each in containers.items() for item in each.get("volumeMounts", ())}
    variables = {entry["name"]: entry.get("value") for each in containers.values() for entry in each.get("env", ())}
    is_injected = variables.get("NVIDIA_VISIBLE_DEVICES") == "all" and "runtimeClassName" in pod
    sees_host_dev = ("reader", "/dev") in mounts or variables.get("MUSTER_READER_DEV_ROOT") == "/host/dev"
    grants = {
        Privilege.HOST_PID: pod["hostPID"],
        Privilege.KERNEL_LOG: reader["securityContext"]["privileged"],
        Privilege.MIG_MONITOR: reader["securityContext"]["privileged"],
        Privilege.GPU_DEVICES: ("reader", "/dev") in mounts or is_injected,
        Privilege.HOST_FILES: ("reader", "/host") in mounts and sees_host_dev,
        Privilege.POD_RESOURCES: ("agent", "/var/lib/kubelet/pod-resources") in mounts,
        Privilege.CHECKPOINT: ("agent", "/var/lib/kubelet/device-plugins") in mounts,
        Privilege.NODE_SLICE: any(entry["name"] == "MUSTER_AGENT_ADMITTERS" for entry in agent["env"]),
    }
    return {privilege for privilege, is_there in grants.items() if is_there}
