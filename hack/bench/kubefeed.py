"""Agents of a cluster's fake nodes, all in one process: they say which pods hold the GPUs, and nothing else.

`python -m hack.bench.kubefeed FOLDER KUBECONFIG PORT...`: connects every Node of the cluster to each admitter with a
certificate of its own from FOLDER (hack.pki), prints a line, and keeps saying what is true until stdin closes. As cheap as
feedload.py, whose streams it uses: agents of their own for a hundred nodes would take the cores that are measured.

A stream whose admitter has ended is dialled again, as an agent's is.
"""

import asyncio
import dataclasses
import itertools
import json
import pathlib
import selectors
import sys
import time

import lightkube
from lightkube.config import kubeconfig
from lightkube.resources import core_v1 as core

from hack.bench import feedhub, feedload, h2stream, podwatch
from muster.model import pbform, protocol, report
from muster.model.reading import Known
from muster.pb.muster.v1 import feed_pb2

GPU, GPUS = "nvidia.com/gpu", 8
PAUSE_SECONDS = 0.1
BEAT_SECONDS = 4.0
REDIAL_SECONDS = 1.0


@dataclasses.dataclass(slots=True)
class Stream:
    """One node's stream to one admitter."""

    node: str
    port: int
    wire: h2stream.Stream | None = None
    sequence: int = 0
    said: tuple[tuple[str, int], ...] | None = None
    """What the admitter was told last; None: nothing yet."""
    beat_at: float = 0.0
    dial_at: float = 0.0


def truth(node: str, held: tuple[tuple[str, int], ...]) -> report.NodeReport:
    """Return a node of eight GPUs of which these pods hold some."""
    free = max(0, GPUS - sum(count for _, count in held))
    whole = feedload.a_report(node, free)
    counted = tuple(report.CountedPod(uid=uid, units=count) for uid, count in held)
    gpus = dataclasses.replace(whole.resources[GPU], counted=counted, allocated=Known(GPUS - free))
    return dataclasses.replace(whole, resources={GPU: gpus})


class Feed:
    """All streams, and what is true."""

    def __init__(self, folder: pathlib.Path, nodes: list[str], ports: list[int]) -> None:
        self._folder = folder
        self._streams = [Stream(node=node, port=port) for node in nodes for port in ports]
        self._held: dict[str, dict[str, int]] = {node: {} for node in nodes}
        self._where: dict[str, str] = {}
        """UID -> node."""
        self._leases: dict[str, feed_pb2.LeaseSet] = {}
        """By node, as the last admitter that spoke of them had them."""
        self._starts = itertools.count(1)

    def observe(self, pod: core.Pod, is_gone: bool) -> None:  # noqa: FBT001 -- what an event says
        """Take in one pod as the API server has it."""
        assert pod.metadata is not None
        assert pod.spec is not None
        uid, node = str(pod.metadata.uid), pod.spec.nodeName or ""
        phase = pod.status.phase if pod.status is not None else ""
        if is_gone or phase in ("Succeeded", "Failed"):
            self._held.get(self._where.pop(uid, ""), {}).pop(uid, None)
        elif node in self._held:
            asked = sum(
                int((each.resources.limits or {}).get(GPU, "0")) for each in pod.spec.containers if each.resources
            )
            if asked:
                self._where[uid] = node
                self._held[node][uid] = asked

    def held(self, node: str) -> tuple[tuple[str, int], ...]:
        """Return the pods that hold GPUs of a node, and how many."""
        return tuple(sorted(self._held[node].items()))

    async def run(self) -> None:
        """Keep every stream up and true, until cancelled."""
        while True:
            for stream in self._streams:
                try:
                    self._tend(stream, time.monotonic())
                except (OSError, h2stream.Ended):
                    if stream.wire is not None:
                        stream.wire.close()
                    stream.wire, stream.dial_at = None, time.monotonic() + REDIAL_SECONDS
            await asyncio.sleep(PAUSE_SECONDS)

    def _tend(self, stream: Stream, now: float) -> None:
        if stream.wire is None:
            if now < stream.dial_at:
                return
            self._dial(stream)
        assert stream.wire is not None
        self._listen(stream, stream.wire)
        held = self.held(stream.node)
        if held != stream.said:
            stream.sequence += 1
            request = feed_pb2.ConnectRequest()
            request.snapshot.sequence = stream.sequence
            pbform.fill(request.snapshot.report, truth(stream.node, held))
            pbform.fill(request.snapshot.topology, feedload.a_topology())
            if stream.node in self._leases:
                request.snapshot.leases.CopyFrom(self._leases[stream.node])
            if stream.wire.send(request.SerializeToString()):
                stream.said, stream.beat_at = held, now + BEAT_SECONDS
        elif now >= stream.beat_at:
            beat = feed_pb2.Heartbeat(sequence=stream.sequence, plane_age_ms={"nvml": 100, "pods": 100})
            stream.wire.send(feed_pb2.ConnectRequest(heartbeat=beat).SerializeToString())
            stream.beat_at = now + BEAT_SECONDS

    def _listen(self, stream: Stream, wire: h2stream.Stream) -> None:
        with selectors.DefaultSelector() as poll:
            poll.register(wire, selectors.EVENT_READ)
            if poll.select(0):
                wire.receive()
        for message in wire.messages():
            answer = feed_pb2.ConnectResponse.FromString(message)
            if answer.HasField("leases"):
                self._hear(stream, answer.leases)
            elif answer.HasField("resync"):
                stream.said = None

    def _hear(self, stream: Stream, leases: feed_pb2.LeaseSet) -> None:
        """Take the leases of the highest term, and report them: a new leader finds them there."""
        known = self._leases.get(stream.node)
        if known is None or leases.term >= known.term:
            self._leases[stream.node] = leases
            for each in self._streams:
                if each.node == stream.node:
                    each.said = None

    def _dial(self, stream: Stream) -> None:
        context = h2stream.context_of(h2stream.files_of(self._folder, stream.node))
        wire = h2stream.Stream(h2stream.dial(stream.port, context))
        hello = feed_pb2.Hello(
            node=stream.node,
            boot_id="boot",
            start_counter=next(self._starts),
            agent_version="0.1.0",
            protocol=protocol.MINOR,
        )
        wire.send(feed_pb2.ConnectRequest(hello=hello).SerializeToString())
        stream.wire, stream.sequence, stream.said = wire, 0, None


async def main(folder: pathlib.Path, path: pathlib.Path, ports: list[int]) -> None:
    client = lightkube.AsyncClient(config=kubeconfig.KubeConfig.from_file(path), trust_env=False)
    nodes = [str(node.metadata.name) async for node in client.list(core.Node) if node.metadata is not None]
    feed = Feed(folder, sorted(nodes), ports)
    print(json.dumps({"nodes": len(nodes)}), flush=True)
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(podwatch.follow(path, feed.observe))]
    ending = asyncio.create_task(stdin.read())
    await asyncio.wait({*tasks, ending}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


if __name__ == "__main__":
    feedhub.allow_files()
    asyncio.run(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), [int(port) for port in sys.argv[3:]]))
