"""The measuring half of the feed benchmark: many nodes on real streams, as cheap as Python allows (h2stream.py).

`python -m hack.bench.feedload FOLDER PORT NODES`: connects every node with its own certificate and sends its snapshot,
prints a line, then sends deltas on all streams for each line `RATE SECONDS` on stdin, prints how many, and hangs up
when stdin closes.
"""

import concurrent.futures
import datetime
import json
import pathlib
import selectors
import sys
import time

from hack.bench import feedhub, h2stream
from muster.model import delta as deltas
from muster.model import pbform, protocol, report
from muster.model.reading import Known
from muster.pb.muster.v1 import feed_pb2

_AT = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
_UUIDS = tuple(f"GPU-{index:08d}-1111-2222-3333-444444444444" for index in range(8))
_DIALS = 4
"""Handshakes at a time."""


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

    def __init__(self, folder: pathlib.Path, port: int, name: str) -> None:
        self.stream = h2stream.Stream(h2stream.dial(port, h2stream.context_of(h2stream.files_of(folder, name))))
        self._sequence = 1
        states = (a_report(name, 3), a_report(name, 4))
        self._changes = []
        for old, new in (states[::-1], states):
            request = feed_pb2.ConnectRequest()
            pbform.fill(request.delta, deltas.diff(old, new, base=1))
            self._changes.append(request)
        hello = feed_pb2.Hello(
            node=name, boot_id="boot", start_counter=1, agent_version="0.1.0", protocol=protocol.MINOR
        )
        self.stream.send(feed_pb2.ConnectRequest(hello=hello).SerializeToString())
        request = feed_pb2.ConnectRequest()
        request.snapshot.sequence = 1
        pbform.fill(request.snapshot.report, states[0])
        pbform.fill(request.snapshot.topology, a_topology())
        self.stream.send(request.SerializeToString())

    def heartbeat(self) -> None:
        beat = feed_pb2.Heartbeat(sequence=self._sequence, plane_age_ms={"nvml": 4000, "pods": 1000})
        self.stream.send(feed_pb2.ConnectRequest(heartbeat=beat).SerializeToString())

    def change(self) -> bool:
        """Send the next delta, if the stream takes it."""
        request = self._changes[self._sequence % 2]
        request.delta.base, request.delta.sequence = self._sequence, self._sequence + 1
        is_sent = self.stream.send(request.SerializeToString())
        self._sequence += is_sent
        return is_sent


class Fleet:
    """All nodes, and a poll that answers what the hub asks of them."""

    def __init__(self, folder: pathlib.Path, port: int, count: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(_DIALS) as pool:
            self._nodes = list(pool.map(lambda index: Node(folder, port, f"n{index}"), range(count)))
        self._poll = selectors.DefaultSelector()
        for node in self._nodes:
            self._poll.register(node.stream, selectors.EVENT_READ, node.stream)
        self._poll.register(sys.stdin, selectors.EVENT_READ)

    def hear(self, seconds: float) -> bool:
        """Take what has come, waiting so long for it; True if the parent has spoken."""
        is_called = False
        for key, _ in self._poll.select(seconds):
            if key.data is None:
                is_called = True
            else:
                key.data.receive()
                key.data.messages()
        return is_called

    def beat_until_called(self) -> None:
        """Heartbeat every node every five seconds, spread evenly, until the parent speaks."""
        began, beats = time.monotonic(), 0
        while not self.hear(0.01):
            due = int((time.monotonic() - began) * len(self._nodes) / 5)
            for turn in range(beats, due):
                self._nodes[turn % len(self._nodes)].heartbeat()
            beats = due

    def change_for(self, rate: float, seconds: float) -> int:
        """Change the nodes in turn, `rate` times a second in all; return how many deltas went out."""
        began, turns, sent = time.monotonic(), 0, 0
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(rate * elapsed)
            for turn in range(turns, due):
                sent += self._nodes[turn % len(self._nodes)].change()
            turns = due
            self.hear(0.004)
        return sent

    def close(self) -> None:
        """Hang up everywhere."""
        for node in self._nodes:
            node.stream.close()


def main(folder: pathlib.Path, port: int, count: int) -> None:
    fleet = Fleet(folder, port, count)
    print(json.dumps({"connected": count}), flush=True)
    while True:
        fleet.beat_until_called()
        line = sys.stdin.readline()
        if not line:
            break
        rate, seconds = map(float, line.split())
        began = time.process_time()
        sent = fleet.change_for(rate, seconds)
        print(json.dumps({"sent": sent, "cpu_s": time.process_time() - began}), flush=True)
    fleet.close()


if __name__ == "__main__":
    feedhub.allow_files()
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
