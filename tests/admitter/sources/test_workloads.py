"""What the objects above pods say, and in which versions they are read."""

import asyncio
import contextlib
import json

import pytest
from lightkube import generic_resource
from lightkube.config import kubeconfig
from lightkube.config.models import Cluster, User
from lightkube.models import batch_v1 as models
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1

from admitter.model.group import PodGroup
from admitter.sources import apiclient, watch, workloads
from tests.feedworld import until

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
JOB_SET = generic_resource.create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


@pytest.mark.parametrize(
    ("labels", "manager", "expected"),
    [
        ({}, None, False),
        (QUEUE, None, True),
        ({}, "kueue.x-k8s.io/multikueue", True),
        ({}, "kubernetes.io/job-controller", False),
        ({}, "jobset.sigs.k8s.io/jobset-controller", False),
    ],
)
def test_whose_word_a_suspension_is(labels, manager, expected):
    metadata = meta_v1.ObjectMeta(name="train", namespace="team-a", uid="u", labels=labels)
    spec = models.JobSpec(template=core_v1.PodTemplateSpec(), managedBy=manager)
    assert workloads.job(batch_v1.Job(metadata=metadata, spec=spec)).is_managed is expected
    whole = JOB_SET.from_dict({"metadata": metadata.to_dict(), "spec": {"managedBy": manager}})
    assert workloads.job_set(whole).is_managed is expected


def a_group(name, *, version, count):
    """A PodGroup as that version of the API has it, with fields that nobody here reads."""
    policy = {"basic": {}} if count is None else {"gang": {"minCount": count}}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "5"},
        "spec": {
            "podGroupTemplateRef": {"workload": {"workloadName": "train", "podGroupTemplateName": "main"}},
            "schedulingPolicy": policy,
            "schedulingConstraints": {"topologyConstraints": [{"topologyKey": "topology.kubernetes.io/rack"}]},
        },
    }


NATIVE = generic_resource.create_namespaced_resource("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")


@pytest.mark.parametrize(("count", "expected"), [(4, 4), (None, 1)], ids=["gang", "basic"])
def test_a_native_group_says_how_many_it_is(count, expected):
    whole = NATIVE.from_dict(a_group("train", version="v1alpha2", count=count))
    assert workloads.native_pod_group(whole) == PodGroup(namespace="team-a", name="train", min_count=expected)


class ApiServer:
    """Serves the kinds in `served`, by path, and no other; watches stay silent until it drops them."""

    def __init__(self):
        self.served = {
            path: [] for path in ("/apis/batch/v1/jobs", "/api/v1/namespaces", "/apis/node.k8s.io/v1/runtimeclasses")
        }
        self.open = []

    async def serve(self, reader, writer):
        try:
            while (line := await reader.readline()).strip():
                while (await reader.readline()).strip():
                    continue
                path = line.split()[1].decode()
                found = self.served.get(path.partition("?")[0])
                if found is not None and "watch=true" in path:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
                    await writer.drain()
                    self.open.append(writer)
                    await reader.read()
                    return
                status = {"kind": "Status", "code": 404, "message": "not here"}
                body = json.dumps(status if found is None else {"metadata": {"resourceVersion": "9"}, "items": found})
                code = 404 if found is None else 200
                head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write((head + body).encode())
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def drop(self):
        for writer in self.open:
            writer.close()
        self.open.clear()


@contextlib.asynccontextmanager
async def followed(server):
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    config = kubeconfig.KubeConfig.from_one(cluster=Cluster(server=f"http://127.0.0.1:{port}"), user=User()).get()
    above = workloads.WorkloadWatch(apiclient.Api(config), asyncio.get_running_loop().time)
    task = asyncio.create_task(above.run())
    try:
        yield above
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.drop()
        listening.close()


PATH = "/apis/scheduling.k8s.io/{}/podgroups"


@pytest.mark.parametrize("versions", [("v1beta1",), ("v1alpha2",), ("v1alpha2", "v1beta1")])
async def test_native_groups_are_read_in_every_version_that_is_served(versions):
    server = ApiServer()
    for version in versions:
        server.served[PATH.format(version)] = [a_group("train", version=version, count=4)]
    async with followed(server) as above:
        await until(lambda: above.is_synced)
        groups = above.workloads().pod_groups
        assert (len(groups), groups["team-a/train"].min_count) == (1, 4)


async def test_groups_of_a_version_that_is_served_no_more_are_gone(monkeypatch):
    monkeypatch.setattr(apiclient, "REOPEN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "PAUSE_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(watch, "ABSENT_SECONDS", 0.01)
    server, changes = ApiServer(), []
    alpha, beta = PATH.format("v1alpha2"), PATH.format("v1beta1")
    server.served[alpha] = [a_group("train", version="v1alpha2", count=4), a_group("old", version="v1alpha2", count=2)]
    async with followed(server) as above:
        above.listen(changes.append)
        await until(lambda: above.is_synced and len(server.open) == 4)
        assert sorted(above.workloads().pod_groups) == ["team-a/old", "team-a/train"]
        server.served[beta] = [a_group("train", version="v1beta1", count=4)]
        del server.served[alpha]
        changes.clear()
        server.drop()
        await until(lambda: list(above.workloads().pod_groups) == ["team-a/train"])
        assert changes, "whoever decides is told"
