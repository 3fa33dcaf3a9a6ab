"""How GPUs are shared and cut, from ConfigMaps of a real API server to a running agent's verdict (faults.md C8)."""

import asyncio
import contextlib
import functools
import json
import pathlib
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from lightkube import codecs
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.sources import apiclient
from admitter.sources.cluster import ClusterWatch
from admitter.sources.configmaps import ConfigMaps
from hack import fakenvml
from hack.fakenode.fleet import free_port
from hack.fakenode.node import GPU_RESOURCE, FakeNode
from muster.clock import SystemClock
from muster.model.reading import Known
from tests.admitter.kubetown import KubeTown, until

ROOT = pathlib.Path(__file__).parents[2]
NODE = "fake-0001"
WANTED = "train-mixed"
LAYOUTS = """
version: v1
mig-configs:
  train-mixed:
    - {devices: [0, 1], mig-enabled: true, mig-devices: {"3g.40gb": 2}}
    - {devices: [2, 3, 4, 5, 6, 7], mig-enabled: false}
"""
SHARING = """
version: v1
flags: {migStrategy: mixed}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""


def a_config_map(namespace, name, text):
    return core.ConfigMap(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace), data={"config.yaml": text})


def a_reader_of(namespace, name, config, *, node=NODE, plugins=False):
    """A pod as the GPU operator makes them: a ConfigMap mounted, and a variable that names the file in it."""
    mounts = [core_v1.VolumeMount(name="config", mountPath="/config")]
    volumes = [core_v1.Volume(name="config", configMap=core_v1.ConfigMapVolumeSource(name=config))]
    if plugins:
        mounts.append(core_v1.VolumeMount(name="plugins", mountPath="/var/lib/kubelet/device-plugins"))
        folder = core_v1.HostPathVolumeSource(path="/var/lib/kubelet/device-plugins")
        volumes.append(core_v1.Volume(name="plugins", hostPath=folder))
    container = core_v1.Container(
        name="main",
        image=f"nvcr.io/nvidia/{name}:v1",
        env=[core_v1.EnvVar(name="CONFIG_FILE", value="/config/config.yaml")],
        volumeMounts=mounts,
    )
    spec = core_v1.PodSpec(nodeName=node, containers=[container], volumes=volumes)
    return core.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace), spec=spec)


@contextlib.contextmanager
def labelled(client, **labels):
    """The node with these labels, and without them afterwards."""
    names = {name.replace("__", "/").replace("_", "."): value for name, value in labels.items()}
    client.patch(core.Node, NODE, {"metadata": {"labels": names}})
    try:
        yield
    finally:
        client.patch(core.Node, NODE, {"metadata": {"labels": dict.fromkeys(names)}})


@contextlib.asynccontextmanager
async def running(task):
    made = asyncio.create_task(task)
    try:
        yield made
    finally:
        made.cancel()
        await asyncio.gather(made, return_exceptions=True)


async def test_a_slice_carries_the_layout_and_how_the_plugin_shares(cluster, client, namespace):
    client.create(a_config_map(namespace, "layouts", LAYOUTS))
    client.create(a_config_map(namespace, "sharing", SHARING))
    client.create(a_reader_of(namespace, "mig-manager", "layouts"))
    client.create(a_reader_of(namespace, "nvidia-device-plugin", "sharing", plugins=True))
    watch = ClusterWatch(
        apiclient.from_kubeconfig(cluster.kubeconfig),
        SystemClock(),
        agents=lambda: frozenset((NODE,)),
        serving_namespaces=(namespace,),
    )
    sent = []
    with labelled(client, nvidia_com__mig_config=WANTED):
        async with running(watch.watch(lambda node, content, age: sent.append(content))):
            await until(
                lambda: sent and isinstance(sent[-1].desired_mig, Known) and sent[-1].desired_mig.value.layout, "it"
            )
            assert [(entry.gpus, dict(entry.profiles)) for entry in sent[-1].desired_mig.value.layout] == [
                ("0,1", {"3g.40gb": 2}),
                ("2,3,4,5,6,7", {}),
            ]
            (plugin,) = [item for item in sent[-1].plugins.value if item.pod.startswith(namespace)]
            assert (plugin.config["sharing"], plugin.config["replicas"], plugin.config["migStrategy"]) == (
                "timeSlicing", "4", "mixed",
            )  # fmt: skip
            # A node that no pod of the stack is bound to any more asks for nothing.
            client.delete(core.Pod, "mig-manager", namespace=namespace, grace_period=0)
            await until(lambda: not sent[-1].desired_mig.value.layout, "the layout's end")


async def test_an_edit_is_seen_and_one_that_is_gone_holds_nothing(cluster, client, namespace):
    name = (namespace, "layouts")
    client.create(a_config_map(*name, "a: 1"))
    changes = []
    maps = ConfigMaps(
        apiclient.from_kubeconfig(cluster.kubeconfig), lambda: {name}, lambda: changes.append(1), period_seconds=0.2
    )
    async with running(maps.run()):
        await until(lambda: maps.documents.get(name) == {"config.yaml": {"a": 1}}, "the first text")
        client.patch(core.ConfigMap, name[1], {"data": {"config.yaml": "a: [1"}}, namespace=namespace)
        await until(lambda: maps.documents.get(name) == {"config.yaml": None}, "what is no YAML")
        client.patch(core.ConfigMap, name[1], {"data": {"config.yaml": "a: 2"}}, namespace=namespace)
        await until(lambda: maps.documents.get(name) == {"config.yaml": {"a": 2}}, "the mended text")
        client.delete(core.ConfigMap, name[1], namespace=namespace)
        await until(lambda: name not in maps.documents, "its end")
    assert len(changes) == 4


async def test_who_may_not_read_it_is_told_what_to_grant_and_the_component_grants_it(cluster, client, namespace):
    """The right on one name is enough; on another name it is refused, and said so."""
    account = "muster-admitter"
    client.create(core.ServiceAccount(metadata=meta_v1.ObjectMeta(name=account, namespace=namespace)))
    allowed, other = (namespace, "default-mig-parted-config"), (namespace, "somebody-elses")
    for name in (allowed, other):
        client.create(a_config_map(*name, "a: 1"))
    for item in codecs.load_all_yaml((ROOT / "daemonset/gpuconfig/rbac.yaml").read_text()):
        item.metadata.namespace = namespace
        for subject in getattr(item, "subjects", None) or ():
            subject.namespace = namespace
        client.create(item)
    request = core.ServiceAccountToken.from_dict({"metadata": {"namespace": namespace}, "spec": {"audiences": []}})
    token = client.create(request, account, namespace=namespace).status.token
    form = yaml.safe_load(cluster.kubeconfig.read_text())
    form["users"][0]["user"] = {"token": token}
    path = pathlib.Path(cluster.kubeconfig).with_name(f"{namespace}.kubeconfig")
    path.write_text(json.dumps(form))
    maps = ConfigMaps(apiclient.from_kubeconfig(path), lambda: {allowed, other}, lambda: None, period_seconds=0.2)
    async with running(maps.run()):
        await until(lambda: maps.documents.get(allowed) == {"config.yaml": {"a": 1}}, "the one that is granted")
        await until(lambda: other in maps.problems, "the refusal")
    assert f"grant verb `get` on it in namespace {namespace} (daemonset/gpuconfig)" in maps.problems[other]
    assert allowed not in maps.problems
    path.unlink()


def page_of(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.URLError:
        return ""


def cut(state, layouts):
    """The driver with some GPUs cut; GPU -> profiles and where each begins."""
    for gpu, instances in layouts.items():
        state = fakenvml.with_mode(state, gpu, current=True)
        state = fakenvml.with_instances(state, gpu, instances)
    return state


HALF = {0: (("3g.40gb", 0), ("3g.40gb", 4)), 1: (("1g.10gb", 0),)}
WHOLE = {0: (("3g.40gb", 0), ("3g.40gb", 4)), 1: (("3g.40gb", 0), ("3g.40gb", 4))}


async def agent_on(node, folder, port, ca, token):
    """Start an agent with its reader on the fake machine; return its process and the port of its metrics."""
    file = folder / "token"
    file.write_text(token)
    metrics = free_port()
    flags = {
        **node.agent_flags(),
        "--admitters": f"127.0.0.1:{port}",
        "--tls-ca": str(ca),
        "--token-file": str(file),
        "--metrics-address": f"127.0.0.1:{metrics}",
        "--poll-seconds": "0.3",
        "--slow-seconds": "0.3",
        "--start-jitter-seconds": "0",
    }
    command = [sys.executable, "-m", "agent.main", "run", *(part for flag in flags.items() for part in flag)]
    with (folder / "agent.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env={**node.environment(), "PYTHONPATH": str(ROOT)}, stderr=log
        )
    return process, metrics


async def test_a_layout_that_stopped_midway_is_seen_by_a_running_agent(tmp_path, cluster, client, namespace):
    """faults.md C8 from end to end: ConfigMap and label on the API server, slices on the feed, GPUs at the fake driver."""
    town = KubeTown(tmp_path, cluster, client, namespace)
    client.create(a_config_map(namespace, "layouts", LAYOUTS))
    client.create(a_reader_of(namespace, "mig-manager", "layouts"))
    node = FakeNode(tmp_path, NODE, "dgx-a100")
    node.drive(functools.partial(cut, layouts=HALF))
    mig = {
        name: [each.uuid for gpu in node.driver.gpus for each in gpu.mig if each.name == name]
        for name in ("3g.40gb", "1g.10gb")
    }
    whole = [gpu.uuid for gpu in node.driver.gpus if not gpu.mig]
    node.restart_plugin({GPU_RESOURCE: whole, **{f"nvidia.com/mig-{name}": ids for name, ids in mig.items()}})
    node.start()
    labels = {
        "nvidia_com__mig_config": WANTED,
        "nvidia_com__mig_config_state": "failed",
        "nvidia_com__mig_strategy": "mixed",
    }
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(node.stop)
        stack.enter_context(labelled(client, **labels))
        admitter, _ = await stack.enter_async_context(town.kube_admitter(serving_namespaces=(namespace,)))
        token = town.token(pod=town.pod_on(NODE))
        process, port = await agent_on(node, tmp_path, admitter.token_port, town.world.admitter.ca, token)
        stack.push_async_callback(ended, process)

        async def page():
            return await asyncio.to_thread(page_of, port)

        found = 'muster_findings{cause="HalfAppliedGeometry"'
        await until_async(page, lambda text: found in text, tmp_path / "agent.log")
        assert 'verdict="WRONG_SHAPE"' in next(line for line in (await page()).splitlines() if line.startswith(found))
        # The tool is run again and gets through: the finding ends with the hardware, whatever the label says.
        node.drive(functools.partial(cut, layouts=WHOLE))
        await until_async(
            page, lambda text: "muster_node_verdict{" in text and found not in text, tmp_path / "agent.log"
        )


async def ended(process):
    if process.returncode is None:
        process.terminate()
    await process.wait()


async def until_async(read, look, log):
    text = await read()
    for _ in range(450):
        if look(text):
            return
        await asyncio.sleep(0.2)
        text = await read()
    pytest.fail(f"never came true:\n{text[-3000:]}\n{log.read_text()[-3000:]}")
