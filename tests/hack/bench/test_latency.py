"""The view of the benchmark: what it waits for, and when it says that it came."""

import asyncio
import contextlib
import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.bench import feedload, latency
from muster.model.admission import CapacityChange, NodeCapacity
from muster.model.report import DeviceState, Topology

REPORT = feedload.a_report("n", 8)
UUID = REPORT.devices[0].uuid


def a_change(state):
    """The whole node, its first GPU in this state."""
    first = dataclasses.replace(REPORT.devices[0], state=state)
    report = dataclasses.replace(REPORT, devices=(first, *REPORT.devices[1:]))
    node = NodeCapacity(node="n", report=report, topology=Topology(generation=0), age_seconds=0.0, stale=False)
    return CapacityChange(version=1, nodes={"n": node})


class Admitter:
    """Tells what it is given, in order."""

    def __init__(self):
        self.told = asyncio.Queue()

    async def watch_capacity(self):
        while True:
            yield await self.told.get()


@contextlib.asynccontextmanager
async def following():
    admitter = Admitter()
    view = latency.View(admitter)
    task = asyncio.create_task(view.follow())
    yield admitter, view
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_unknown_gpu_is_neither_healthy_nor_marked():
    async with following() as (_, view):
        assert not view.is_healthy("n", UUID)
        assert not view.is_marked("n", UUID)


@pytest.mark.parametrize("state", [state for state in DeviceState if state is not DeviceState.HEALTHY])
async def test_every_state_but_healthy_is_a_mark(state):
    async with following() as (admitter, view):
        admitter.told.put_nowait(a_change(DeviceState.HEALTHY))
        await view.until(lambda: view.is_healthy("n", UUID), 10, "healthy")
        began = time.monotonic()
        waiting = asyncio.create_task(view.until(lambda: view.is_marked("n", UUID), 10, "marked"))
        await asyncio.sleep(0)
        admitter.told.put_nowait(a_change(state))
        assert began <= await waiting <= time.monotonic()


async def test_what_never_comes_ends_the_benchmark():
    async with following() as (_, view):
        with pytest.raises(latency.NotSeen, match="GPU 3"):
            await view.until(lambda: False, 0.01, "GPU 3")


@given(st.lists(st.floats(min_value=0, max_value=60), min_size=1, max_size=300))
def test_quantiles_are_measured_values_in_order(samples):
    found = list(latency.quantiles_ms(samples).values())
    assert found == sorted(found)
    assert {*found} <= {round(sample * 1000, 1) for sample in samples}


def test_the_99th_of_a_hundred_leaves_one_out():
    assert latency.quantiles_ms([number / 1000 for number in range(1, 101)]) == {
        "p50_ms": 50.0,
        "p99_ms": 99.0,
        "max_ms": 100.0,
    }
