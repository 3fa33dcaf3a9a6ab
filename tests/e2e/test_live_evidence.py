"""Faults whose evidence is a socket or somebody's word, seen by running programs: faults.md A9, D3, G3.

Real agent and reader, real sockets of plugin, driver and kubelet; the kernel's own table says who is connected. Each fault is
made and then ended, so that what is seen is the evidence and not the scene.
"""

import functools

import pytest

from hack.fakenode import host, kubeletstate
from hack.fakenode.fleet import Fleet, wait_until
from hack.fakenode.node import GPU_RESOURCE, FakeNode
from muster.model import kube
from muster.model.reading import Known
from tests.e2e.test_scrape import SETTINGS, WAIT_SECONDS, page_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

WRONG_ROOT, BLIND_PLUGIN, DRA = "gpu-a9", "gpu-d3", "gpu-g3"
SCALE = 0.02
DRIVER = "gpu.nvidia.com"
REGISTRY = f"plugins_registry/{DRIVER}-reg.sock"
PLUGIN = f"device-plugins/{host.PLUGIN_SOCKET}"


def a_node(folder, name):
    node = FakeNode(folder, name)
    node.reader_extra = {"sockets_seconds": "0.5", "kubelet_roots": "/k0s"}
    return node


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Three machines: one without a device plugin's word anywhere, one with a plugin on a stream, one of DRA alone."""
    folder = tmp_path_factory.mktemp("live")
    nodes = {name: a_node(folder, name) for name in (WRONG_ROOT, BLIND_PLUGIN, DRA)}
    for name in (WRONG_ROOT, DRA):
        nodes[name].kubelet(kubeletstate.forget(GPU_RESOURCE))
        host.stop_plugin(nodes[name].root)
    dra = nodes[DRA]
    dra.has_plugin_pod = False
    devices = tuple(
        kube.DraDevice(name=f"gpu-{index}", uuid=gpu.uuid, type="gpu") for index, gpu in enumerate(dra.driver.gpus)
    )
    dra.dra = Known(kube.Dra(slices=(kube.DraSlice(driver=DRIVER, pool=DRA, devices=devices),)))
    with Fleet(folder, nodes.values(), scale=SCALE, settings=SETTINGS) as made:
        made.start()
        yield made


def verdict(fleet, name, cause, word):
    """Return whether the node's agent names the cause with this verdict."""
    return any(
        f'cause="{cause}"' in line and f'verdict="{word}"' in line
        for line in page_of(fleet.metrics[name]).splitlines()
        if line.startswith("muster_findings{")
    )


def names(fleet, name, cause):
    return f'cause="{cause}"' in page_of(fleet.metrics[name])


def reports(fleet, name):
    return "muster_node_verdict{" in page_of(fleet.metrics[name])


def until(fleet, name, look):
    assert wait_until(look, WAIT_SECONDS), f"{page_of(fleet.metrics[name])[-3000:]}\n{fleet.log_of(name)[-3000:]}"


def test_a_plugin_that_serves_in_another_kubelets_folder(fleet):
    """faults.md A9: everything runs, the key is absent, and the socket is in a folder without a kubelet."""
    node = fleet.nodes[WRONG_ROOT]
    host.start_plugin(node.root)
    (node.root / PLUGIN).unlink()
    plugin = node.serve("plugin", f"k0s/{PLUGIN}")
    until(fleet, WRONG_ROOT, functools.partial(verdict, fleet, WRONG_ROOT, "WrongKubeletRoot", "UNDER"))
    # The same socket, and nobody behind it any more: a folder that an earlier installation left.
    node.unserve(plugin)
    until(fleet, WRONG_ROOT, lambda: not names(fleet, WRONG_ROOT, "WrongKubeletRoot"))
    assert names(fleet, WRONG_ROOT, "NoDevicesWaitingForever")


def test_a_plugin_that_is_connected_and_calls_everything_sick(fleet):
    """faults.md D3: what tells it from a plugin that is away is the kubelet's stream to it."""
    node = fleet.nodes[BLIND_PLUGIN]
    (node.root / PLUGIN).unlink()
    plugin = node.serve("plugin", PLUGIN)
    stream = node.serve("stream", PLUGIN)
    node.kubelet(kubeletstate.plugin_down(GPU_RESOURCE))  # N/0, whoever says so
    fleet.publish()
    until(fleet, BLIND_PLUGIN, functools.partial(verdict, fleet, BLIND_PLUGIN, "PluginContainerLostGpu", "UNDER"))
    node.unserve(stream)

    def is_told():
        # The kernel's table is always that of the moment; ours is a copy, in which the reader's own look may stand for ever.
        host.show_sockets(node.root)
        cause = functools.partial(names, fleet, BLIND_PLUGIN)
        return cause("PluginDownInGrace") and not cause("PluginContainerLostGpu")

    until(fleet, BLIND_PLUGIN, is_told)
    node.unserve(plugin)


def test_slices_that_outlive_their_driver(fleet):
    """faults.md G3: killed, the driver leaves its socket's file and its slices; a new one ends the finding."""
    node = fleet.nodes[DRA]
    driver = node.serve("driver", REGISTRY, DRIVER)
    gone = functools.partial(names, fleet, DRA, "DraSliceOutlivesDriver")
    until(fleet, DRA, lambda: reports(fleet, DRA) and not gone())
    node.unserve(driver)
    assert (node.root / REGISTRY).exists()
    until(fleet, DRA, functools.partial(verdict, fleet, DRA, "DraSliceOutlivesDriver", "OVER"))
    node.serve("driver", REGISTRY, DRIVER)
    until(fleet, DRA, lambda: not gone())
    (node.root / REGISTRY).unlink()
    until(fleet, DRA, gone)
