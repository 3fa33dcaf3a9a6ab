"""One outstanding job a worker."""

import asyncio
import threading

import pytest

from agent.reader import workers
from tests.agent.reader.world import until


async def test_a_job_returns_or_raises():
    worker = workers.Worker("test")
    assert await worker.run(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0, 5)
    worker.stop()


async def test_while_a_job_is_overdue_no_other_is_taken_and_its_return_clears_the_mark():
    worker, release, ran = workers.Worker("test"), threading.Event(), []
    with pytest.raises(workers.Overdue):
        await worker.run(release.wait, 0.05)
    for _ in range(5):
        with pytest.raises(workers.Overdue):
            await worker.run(lambda: ran.append(1), 5)
    assert worker.is_overdue
    release.set()

    async def is_overdue():
        return worker.is_overdue

    await until(is_overdue, lambda overdue: not overdue)
    assert await worker.run(lambda: "again", 5) == "again"
    assert ran == []
    worker.stop()


async def test_jobs_of_one_worker_run_one_after_the_other():
    worker, running, most = workers.Worker("test"), [], []

    def job():
        running.append(1)
        most.append(len(running))
        running.pop()

    await asyncio.gather(*(worker.run(job, 5) for _ in range(20)))
    assert max(most) == 1
    assert len(most) == 20
    worker.stop()


async def test_one_worker_does_not_wait_for_another():
    stuck, free, release = workers.Worker("stuck"), workers.Worker("free"), threading.Event()
    waiting = asyncio.create_task(stuck.run(release.wait, 30))
    assert await free.run(lambda: 1, 5) == 1
    release.set()
    assert await waiting
    stuck.stop()
    free.stop()


async def test_whoever_stops_waiting_leaves_the_job_overdue():
    worker, release = workers.Worker("test"), threading.Event()
    waiting = asyncio.create_task(worker.run(release.wait, 30))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert worker.is_overdue
    release.set()
    worker.stop()
