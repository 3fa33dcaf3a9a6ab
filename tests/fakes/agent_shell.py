"""A clock that moves when told, and a reader and a kubelet that answer from memory: for the loop and the sampler.

All are real implementations of the protocols that the shell asks for, with the ways to fail written out.
"""

import asyncio
import dataclasses
import datetime
import heapq

from agent.model import planes
from muster.model.reading import NOT_COLLECTED, Known, Unknown

START = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)


class FakeClock:
    """Both clocks and `sleep`; time passes only in `advance`."""

    def __init__(self):
        self._now = 1000.0
        self._sleepers = []

    def utc(self):
        return START + datetime.timedelta(seconds=self._now - 1000.0)

    def monotonic(self):
        return self._now

    async def sleep(self, seconds):
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        done = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, id(done), done))
        await done

    async def advance(self, seconds):
        """Let time pass, waking each sleeper at its very moment."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, done = heapq.heappop(self._sleepers)
            if not done.done():
                done.set_result(None)
            await settle()
        self._now = end
        await settle()


async def settle():
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    boot: object = NOT_COLLECTED
    kubelet_started_at: object = NOT_COLLECTED
    plugins: object = NOT_COLLECTED
    dra_drivers: object = NOT_COLLECTED


class FakeReader:
    """Answers with `uuids`, and writes down what it was asked."""

    def __init__(self, *uuids):
        self.uuids = list(uuids or ["GPU-a"])
        self.calls = []
        self.broken = {}
        """Plane -> reason."""
        self.host = Host()
        self.events = asyncio.Queue()

    async def read_nvml(self, *, with_static, with_processes):
        self.calls.append(("nvml", with_static, with_processes))
        if "nvml" in self.broken:
            return Unknown(self.broken["nvml"])
        return Known(planes.Nvml(devices=tuple(planes.Gpu(uuid=uuid) for uuid in self.uuids)))

    async def _read(self, plane, value):
        self.calls.append(plane)
        return Unknown(self.broken[plane]) if plane in self.broken else Known(value)

    async def read_pci(self):
        return await self._read("pci", ())

    async def read_device_nodes(self):
        return await self._read("device_nodes", ())

    async def read_kernel_log(self):
        return await self._read("kernel_log", ())

    async def read_host(self):
        self.calls.append("host")
        return self.host

    async def read_mps(self):
        return await self._read("mps", planes.Mps())

    async def read_cdi(self):
        return await self._read("cdi", ())

    async def watch(self):
        while (event := await self.events.get()) is not None:
            yield event


class FakeKubelet:
    """Answers from two queues; the last answer stays."""

    def __init__(self, allocatable=((),), pods=((),)):
        self.allocatable = [item if isinstance(item, Unknown) else Known(item) for item in allocatable]
        self.pods = [item if isinstance(item, Unknown) else Known(item) for item in pods]
        self.asked = 0

    async def read_allocatable(self):
        self.asked += 1
        return self.allocatable.pop(0) if len(self.allocatable) > 1 else self.allocatable[0]

    async def read_pods(self):
        return self.pods.pop(0) if len(self.pods) > 1 else self.pods[0]


class NoCheckpoint:
    def read(self):
        return Unknown("NotFound")
