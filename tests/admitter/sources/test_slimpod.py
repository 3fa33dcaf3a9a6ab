"""What is kept of a pod of the GPU stack: how GPUs are shared and cut, and nothing that may be a secret."""

import doctest

from lightkube.resources import core_v1 as core

from admitter.sources import slimpod
from admitter.sources.sharing import Shared

SERVING = frozenset(("gpu-operator",))
OWNED_BY_DAEMON_SET = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
}
"""Which proves nothing: any tenant may make one."""


def a_pod(name, containers, volumes, namespace="gpu-operator", **spec):
    content = {"containers": containers, "volumes": volumes, **spec}
    metadata = {"uid": "u", "name": name, "namespace": namespace, **OWNED_BY_DAEMON_SET}
    return slimpod.pod(core.Pod.from_dict({"metadata": metadata, "spec": content}), Shared(), SERVING)


def env(**variables):
    return [{"name": name, "value": value} for name, value in variables.items()]


PLUGIN = a_pod(
    "nvidia-device-plugin-daemonset-x",
    [
        {
            "name": "nvidia-device-plugin",
            "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.4",
            "command": ["nvidia-device-plugin", "--mig-strategy=mixed"],
            "env": [*env(MIG_STRATEGY="none", PASS_DEVICE_SPECS="true", LICENCE_KEY="secret"), {"name": "NODE_NAME"}],
            "volumeMounts": [
                {"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
                {"name": "entry", "mountPath": "/bin/entrypoint.sh", "subPath": "entrypoint.sh"},
            ],
        },
        {
            "name": "config-manager",
            "image": "m",
            "env": env(CONFIG_FILE_SRCDIR="/available-configs", NODE_LABEL="nvidia.com/device-plugin.config"),
            "volumeMounts": [{"name": "configs", "mountPath": "/available-configs/"}],
        },
    ],
    [
        {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}},
        {"name": "entry", "configMap": {"name": "nvidia-device-plugin-entrypoint"}},
        {"name": "configs", "configMap": {"name": "time-slicing-config"}},
    ],
)
MANAGER_PARTS = (
    "nvidia-mig-manager-x",
    [
        {
            "name": "nvidia-mig-manager",
            "image": "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.2",
            "env": env(CONFIG_FILE="/mig-parted-config/config.yaml"),
            "volumeMounts": [{"name": "layouts", "mountPath": "/mig-parted-config"}],
        }
    ],
    [{"name": "layouts", "configMap": {"name": "default-mig-parted-config"}}],
)
MANAGER = a_pod(*MANAGER_PARTS)


def test_examples():
    results = doctest.testmod(slimpod)
    assert results.attempted > 0
    assert results.failed == 0


def test_a_plugin_keeps_what_it_was_told_and_no_secret():
    assert (PLUGIN.serves_devices, PLUGIN.manages_mig) == (True, False)
    assert PLUGIN.told.settings == {
        "MIG_STRATEGY": "mixed",  # the flag stands above the variable
        "PASS_DEVICE_SPECS": "true",
        "CONFIG_FILE_SRCDIR": "/available-configs",
        "NODE_LABEL": "nvidia.com/device-plugin.config",
    }
    assert PLUGIN.told.folders == {"/available-configs": "time-slicing-config"}


def test_a_mig_manager_keeps_where_its_layouts_are():
    assert (MANAGER.serves_devices, MANAGER.manages_mig) == (False, True)
    assert MANAGER.told.settings == {"CONFIG_FILE": "/mig-parted-config/config.yaml"}
    assert MANAGER.told.folders == {"/mig-parted-config": "default-mig-parted-config"}


def test_a_tenants_pod_of_that_name_and_image_manages_nothing():
    """Its layout would be held against the node, and its ConfigMap would be asked for."""
    pod = a_pod(*MANAGER_PARTS, namespace="team-a")
    assert (pod.manages_mig, pod.told) == (False, None)


def test_of_any_other_pod_nothing_is_kept():
    pod = a_pod("train", [{"name": "main", "image": "i", "env": env(MIG_STRATEGY="mixed")}], [])
    assert (pod.told, pod.manages_mig) == (None, False)


def test_images_that_are_never_pulled_are_told():
    pod = a_pod(
        "x",
        [
            {"name": "a", "image": "a:1", "imagePullPolicy": "Never"},
            {"name": "b", "image": "b:1", "imagePullPolicy": "IfNotPresent"},
            {"name": "c", "image": "b:1", "imagePullPolicy": "Never"},
        ],
        [],
        initContainers=[{"name": "i", "image": "i:1", "imagePullPolicy": "Never"}],
    )
    assert pod.unpulled_images == ("a:1", "i:1")
