"""The measuring half of the feed benchmark: many nodes on real streams, as cheap as Python allows.

`python -m hack.bench.feedload FOLDER PORT NODES`: connects every node with its own certificate and sends its snapshot,
prints a line, then sends deltas on all streams for each line `RATE SECONDS` on stdin, prints how many, and hangs up
when stdin closes.
"""

import asyncio
import datetime
import json
import pathlib
import sys
import time
from typing import Any

import grpc

from hack.bench import feedhub
from muster import tls
from muster.model import delta as deltas
from muster.model import pbform, protocol, report
from muster.model.reading import Known
from muster.pb.muster.v1 import feed_pb2

_AT = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
_UUIDS = tuple(f"GPU-{index:08d}-1111-2222-3333-444444444444" for index in range(8))
_DIALS = 32
"""Handshakes at a time."""
_WRITERS = 8
"""Writes at a time."""


def a_report(node: str, free: int) -> report.NodeReport:
    """Return a node of eight GPUs, `free` of them free: what an agent in daily life says."""
    eight, known_free = Known(8), Known(free)
    gpus = report.ResourceReport(
        verdict=report.Verdict.OK,
        admit_strict=known_free,
        admit_lenient=known_free,
        pick_risk=Known(0.0),
        capacity=eight,
        allocatable=eight,
        advertised=eight,
        present=eight,
        allocated=Known(8 - free),
        usable=eight,
        free=known_free,
        free_devices=_UUIDS[:free],
        counted=tuple(report.CountedPod(uid=f"00000000-0000-pod-{index}", units=1) for index in range(8 - free)),
        planes=("nvml", "kubelet.allocatable", "kubelet.pods", "node_object", "pods"),
    )
    return report.NodeReport(
        node=node,
        taken_at=_AT,
        verdict=report.Verdict.OK,
        resources={"nvidia.com/gpu": gpus},
        devices=tuple(_device(index, is_free=index < free) for index in range(8)),
    )


def _device(index: int, *, is_free: bool) -> report.DeviceReport:
    return report.DeviceReport(
        uuid=_UUIDS[index],
        pci=f"0000:{index:02x}:00.0",
        state=report.DeviceState.HEALTHY,
        reason="Ok",
        holder=report.Holder.NONE if is_free else report.Holder.POD,
        pods=() if is_free else (f"team/train-{index}",),
    )


def a_topology() -> report.Topology:
    """Return the static facts of such a node."""
    return report.Topology(
        generation=1,
        gpus=tuple(
            report.GpuTopology(
                uuid=uuid,
                pci=f"0000:{index:02x}:00.0",
                product="NVIDIA H100 80GB HBM3",
                memory_bytes=Known(85520809984),
                numa_node=Known(index // 4),
                island="nvlink-0",
            )
            for index, uuid in enumerate(_UUIDS)
        ),
    )


class Node:
    """One connected node; its deltas go back and forth between two states, a pod coming and going."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        connect: Any = channel.stream_stream
        self._call = connect(protocol.METHOD)()
        self._name = name
        self._sequence = 1
        states = (a_report(name, 3), a_report(name, 4))
        self._changes = []
        for old, new in (states[::-1], states):
            request = feed_pb2.ConnectRequest()
            pbform.fill(request.delta, deltas.diff(old, new, base=1))
            self._changes.append(request)

    async def begin(self) -> None:
        hello = feed_pb2.Hello(
            node=self._name, boot_id="boot", start_counter=1, agent_version="0.1.0", protocol=protocol.MINOR
        )
        await self._call.write(feed_pb2.ConnectRequest(hello=hello).SerializeToString())
        await self._call.read()
        request = feed_pb2.ConnectRequest()
        request.snapshot.sequence = 1
        pbform.fill(request.snapshot.report, a_report(self._name, 3))
        pbform.fill(request.snapshot.topology, a_topology())
        await self._call.write(request.SerializeToString())

    async def heartbeat(self) -> None:
        beat = feed_pb2.Heartbeat(sequence=self._sequence, plane_age_ms={"nvml": 4000, "pods": 1000})
        await self._call.write(feed_pb2.ConnectRequest(heartbeat=beat).SerializeToString())

    async def change(self) -> None:
        request = self._changes[self._sequence % 2]
        request.delta.base, request.delta.sequence = self._sequence, self._sequence + 1
        self._sequence += 1
        await self._call.write(request.SerializeToString())


async def connect(folder: pathlib.Path, port: int, index: int, gate: asyncio.Semaphore) -> Node:
    stem = f"node-n{index}"
    files = tls.Files(ca=folder / "ca.pem", certificate=folder / f"{stem}.pem", key=folder / f"{stem}.key")
    async with gate:
        options = (*tls.DIAL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", tls.channel_credentials(files), options=options)
        node = Node(f"n{index}", channel)
        await node.begin()
    return node


async def beat(nodes: list[Node]) -> None:
    """Heartbeat every node once every five seconds, spread evenly."""
    while True:
        for node in nodes:
            await node.heartbeat()
            await asyncio.sleep(5 / len(nodes))


async def change_all(nodes: list[Node], rate: float, seconds: float) -> int:
    """Change the nodes in turn, `rate` times a second in all; return how often."""
    sent = 0
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds and nodes:
        due = int(rate * elapsed) - sent
        if due < 1:
            await asyncio.sleep(0.002)
            continue
        for _ in range(due):
            await nodes[sent % len(nodes)].change()
            sent += 1
    return sent


async def load(folder: pathlib.Path, port: int, count: int) -> None:
    gate = asyncio.Semaphore(_DIALS)
    nodes = await asyncio.gather(*(connect(folder, port, index, gate) for index in range(count)))
    print(json.dumps({"connected": len(nodes)}), flush=True)
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    while True:
        beating = asyncio.create_task(beat(nodes))
        line = await stdin.readline()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        if not line:
            break
        rate, seconds = map(float, line.split())
        sent = await asyncio.gather(
            *(change_all(nodes[worker::_WRITERS], rate / _WRITERS, seconds) for worker in range(_WRITERS))
        )
        print(json.dumps({"sent": sum(sent), "cpu_s": time.process_time()}), flush=True)
    await asyncio.gather(*(node.channel.close(None) for node in nodes))


if __name__ == "__main__":
    feedhub.allow_files()
    asyncio.run(load(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
