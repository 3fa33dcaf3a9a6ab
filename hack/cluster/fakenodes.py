"""`python -m hack.cluster.fakenodes --kubeconfig FILE --nodes 500`: kubelets that only talk to the API server.

In: pods that a scheduler binds to our nodes. Out: Node objects with devices, heartbeats, pod status. Controlled through
the API server alone: annotations on pods and Nodes (fakekubelet.py).

Invariant: a pod's status is written by its node's turn only, and under the pod's UID, so that a pod that was replaced
under the same name is left alone. A broken watch is followed by a full list: nothing that happened in between is lost.

Why one process for all nodes: a thousand processes weigh gigabytes, and one watch serves them all.

Not here: what a kubelet decides (fakekubelet.py). Started and stopped as a part of a cluster by run.py.
"""

import argparse
import asyncio
import datetime
import logging
import pathlib
import signal
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any

import httpx2
import lightkube
from lightkube.config import kubeconfig
from lightkube.core import exceptions
from lightkube.resources import coordination_v1, core_v1
from lightkube.types import PatchType

from hack.cluster import fakekubelet, pki

RESOURCE = "nvidia.com/gpu"
LEASE_NAMESPACE = "kube-node-lease"
STATUS_SECONDS = 10.0  # the kubelet's status period, faults.md section 2
AT_ONCE = 24  # requests in flight; more only queue up in an API server on two cores
REGISTERING = AT_ONCE  # nodes in the middle of it: the first one's lease does not wait for the last one's Node
TRIES = 5
RETRY_SECONDS = 1.0

log = logging.getLogger("fakenodes")


class Fleet:
    """Fake kubelets of many nodes, on one connection pool."""

    def __init__(self, client: lightkube.AsyncClient, machines: Iterable[fakekubelet.Machine]) -> None:
        self._client = client
        self._machines = {machine.name: machine for machine in machines}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._ending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._posting: set[str] = set()
        self._registered = 0
        self._renew_seconds = fakekubelet.renew_seconds(len(self._machines))
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._registering = asyncio.Semaphore(REGISTERING)
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Register every node and play kubelet until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_pods())
            tasks.create_task(self._follow_nodes())
            for machine in self._machines.values():
                tasks.create_task(self._stay(machine))

    async def _stay(self, machine: fakekubelet.Machine) -> None:
        """Register a node, then renew its lease. It begins at once: others may still register for longer than it lasts."""
        async with self._registering:
            await self._register(machine)
        self._registered += 1
        if self._registered == len(self._machines):
            self.ready.set()
            log.info("%d nodes registered", self._registered)
        while True:
            await asyncio.sleep(self._renew_seconds)
            await self._renew_lease(machine.name)

    async def _register(self, machine: fakekubelet.Machine) -> None:
        body = {**fakekubelet.node_object(machine), "status": fakekubelet.node_status(machine, RESOURCE, _now())}
        node: Any = core_v1.Node.from_dict(body)
        created = await self._send(lambda: self._client.create(node))
        if created is None:  # of an earlier run of this process
            await self._post_status(machine)
        uid = created.metadata.uid if created is not None else ""
        owner = {"apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": uid}
        metadata = {"name": machine.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner] * bool(uid)}
        duration = round(4 * self._renew_seconds)  # as a kubelet's 40 s
        spec = {"holderIdentity": machine.name, "leaseDurationSeconds": duration, "renewTime": _now_micro()}
        lease: Any = coordination_v1.Lease.from_dict({"metadata": metadata, "spec": spec})
        await self._send(lambda: self._client.create(lease))

    async def _post_status(self, machine: fakekubelet.Machine) -> None:
        status = {"status": fakekubelet.node_status(machine, RESOURCE, _now())}
        await self._send(
            lambda: self._client.patch(core_v1.NodeStatus, machine.name, status, patch_type=PatchType.STRATEGIC)
        )

    async def _renew_lease(self, name: str) -> None:
        renewed = {"spec": {"renewTime": _now_micro()}}
        await self._send(
            lambda: self._client.patch(
                coordination_v1.Lease, name, renewed, namespace=LEASE_NAMESPACE, patch_type=PatchType.MERGE
            )
        )

    async def _follow_nodes(self) -> None:
        """Obey the annotation that loses devices: at once inside the kubelet, a status period later in node.status.

        A node that the node controller has called lost says that it is ready, as a kubelet does at its next status pass.
        """
        async for _, nodes in self._changes(core_v1.Node):
            for operation, node in nodes:
                machine = self._machines.get(node.metadata.name)
                if machine is None or operation == "DELETED":
                    continue
                annotations = node.metadata.annotations or {}
                lost = int(annotations.get(fakekubelet.LOST, "0"))
                if lost != machine.lost:
                    self._machines[machine.name] = fakekubelet.lose(
                        machine, lost, is_unnoticed=annotations.get(fakekubelet.UNNOTICED) == "true"
                    )
                is_due = lost != machine.lost or not fakekubelet.is_ready(node)
                if is_due and machine.name not in self._posting:
                    self._posting.add(machine.name)
                    self._spawn(self._post_status_later(machine.name))

    async def _post_status_later(self, name: str) -> None:
        await asyncio.sleep(STATUS_SECONDS)
        self._posting.discard(name)  # what changes from here on is not in this post
        await self._post_status(self._machines[name])

    async def _follow_pods(self) -> None:
        async for is_list, pods in self._changes(core_v1.Pod):
            seen = [(operation, fakekubelet.bound(pod, RESOURCE)) for operation, pod in pods]
            if is_list:
                self._forget_all_but({pod.uid for _, pod in seen})
            for operation, pod in seen:
                if pod.node in self._machines:
                    self._observe(operation, pod)

    async def _changes(self, resource: Any) -> AsyncIterator[tuple[bool, list[tuple[str, Any]]]]:
        """Yield (True, everything there is), then (False, one change) each, and start over when the watch breaks."""
        everywhere = "*" if resource is core_v1.Pod else None
        while True:
            try:
                listed = self._client.list(resource, namespace=everywhere)
                found = [("ADDED", item) async for item in listed]
                yield True, found
                version = listed.resourceVersion
                async for change in self._client.watch(resource, namespace=everywhere, resource_version=version):
                    yield False, [change]
            except (httpx2.HTTPError, exceptions.ApiError) as error:
                log.warning("watching %s: %r; starting over", resource.__name__, error)
                await asyncio.sleep(RETRY_SECONDS)

    def _forget_all_but(self, uids: set[str]) -> None:
        for machine in list(self._machines.values()):
            for uid in machine.held.keys() - uids:
                self._release(machine.name, uid)

    def _observe(self, operation: str, pod: fakekubelet.Bound) -> None:
        """Take one sight of one pod, in any order and any number of times."""
        if operation == "DELETED":
            self._end_life(pod.uid)
            self._ending.discard(pod.uid)
            self._release(pod.node, pod.uid)
        elif pod.is_deleted:
            if pod.uid not in self._ending:
                self._ending.add(pod.uid)
                self._end_life(pod.uid)
                self._spawn(self._end(pod))
        elif pod.is_over:
            self._lives.pop(pod.uid, None)
            self._release(pod.node, pod.uid)
        elif pod.uid not in self._lives:
            self._lives[pod.uid] = asyncio.get_running_loop().create_task(self._live(pod))

    def _end_life(self, uid: str) -> None:
        life = self._lives.pop(uid, None)
        if life is not None:
            life.cancel()

    async def _live(self, pod: fakekubelet.Bound) -> None:
        """Admit, run and end one pod."""
        machine, rejection = fakekubelet.admit(self._machines[pod.node], pod, RESOURCE)
        self._machines[pod.node] = machine
        if rejection is not None:
            await self._write(pod, fakekubelet.rejected(rejection))
            return
        if pod.is_unpullable:
            await self._write(pod, fakekubelet.unpulled(pod, _now()))
            return
        await self._write(pod, fakekubelet.running(machine, pod, RESOURCE, _now()))
        if pod.run_seconds is None:
            return
        await asyncio.sleep(pod.run_seconds)
        await self._write(pod, fakekubelet.ended(pod, pod.exit_code, _now()))
        self._release(pod.node, pod.uid)

    async def _end(self, pod: fakekubelet.Bound) -> None:
        """Kill a pod that is being deleted, then let it go from the API server."""
        if not pod.is_over:
            await self._write(pod, fakekubelet.ended(pod, fakekubelet.KILLED, _now()))
        self._release(pod.node, pod.uid)
        await self._send(lambda: self._client.delete(core_v1.Pod, pod.name, namespace=pod.namespace, grace_period=0))

    async def _write(self, pod: fakekubelet.Bound, status: dict[str, Any]) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        await self._send(
            lambda: self._client.patch(
                core_v1.PodStatus, pod.name, body, namespace=pod.namespace, patch_type=PatchType.STRATEGIC
            )
        )

    def _release(self, node: str, uid: str) -> None:
        self._machines[node] = fakekubelet.release(self._machines[node], uid)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, request: Any) -> Any:
        """Send a request, again while the server is out of reach; None where it says that this is no longer so."""
        for _ in range(TRIES):
            try:
                async with self._slots:
                    return await request()
            except exceptions.ApiError as error:
                # Gone, replaced under the same name, or there already: the watch tells, nothing to repeat.
                if error.status.code in {404, 409}:
                    return None
                log.warning("refused: %s", error)
            except httpx2.HTTPError as error:
                log.warning("no answer: %r", error)
            await asyncio.sleep(RETRY_SECONDS)
        return None


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 -- a status has dates


def _now_micro() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251 -- as above


async def _serve_health(fleet: Fleet, port: int) -> asyncio.Server:
    """Answer 200 once all nodes are registered, 503 before."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        line = "200 OK" if fleet.ready.is_set() else "503 Service Unavailable"
        writer.write(f"HTTP/1.0 {line}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    return await asyncio.start_server(answer, pki.LOOPBACK, port)


async def _main(arguments: argparse.Namespace) -> None:
    config = kubeconfig.KubeConfig.from_file(arguments.kubeconfig)
    client = lightkube.AsyncClient(config=config, trust_env=False)
    names = [f"{arguments.prefix}-{index:04d}" for index in range(arguments.nodes)]
    fleet = Fleet(client, [fakekubelet.a_machine(name, arguments.gpus) for name in names])
    server = await _serve_health(fleet, arguments.health_port)
    work = asyncio.ensure_future(fleet.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("asked to stop")
    finally:
        server.close()
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster.fakenodes", description="Fake nodes with GPUs.")
    parser.add_argument("--kubeconfig", type=pathlib.Path, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--prefix", default="fake", help="nodes are PREFIX-0000 and so on")
    parser.add_argument("--health-port", type=int, default=0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
