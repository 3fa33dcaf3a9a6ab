"""A download that is interrupted goes on with the very next byte, whatever had been stored by then."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.warm import Reason
from agent.warmer import parking
from agent.warmer.registry import RegistryFailed

DIGEST = "sha256:aa"


class Body:
    """Bytes, in pieces as they are asked for; then the end, or a failure."""

    def __init__(self, data, failure=None):
        self.data, self.failure, self.is_closed = data, failure, False

    def read(self, size):
        piece, self.data = self.data[:size], self.data[size:]
        if not piece and self.failure is not None:
            raise self.failure
        return piece

    def close(self):
        self.is_closed = True


@given(
    data=st.binary(min_size=1, max_size=60), steps=st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20)
)
def test_every_byte_comes_once_and_in_order(data, steps):
    """Interrupted after a peek, with the piece stored or not: nothing is lost and nothing comes twice."""

    async def run():
        park, stored = parking.Parking(), b""
        source = parking.Source(Body(data), 0)
        for size, is_stored in steps:
            if len(stored) == len(data):
                break
            piece = await source.peek(size)
            # The peer may have taken the piece although we never heard so.
            stored += piece if is_stored else b""
            park.put(DIGEST, source)
            source = await park.take(DIGEST, len(stored))
            assert source is not None
        while len(stored) < len(data):
            piece = await source.peek(7)
            stored += piece
            source.advance(len(piece))
        park.close()
        return stored

    assert asyncio.run(run()) == data


async def test_an_offset_that_is_not_its_own_closes_it():
    park, body = parking.Parking(), Body(b"0123456789")
    park.put(DIGEST, parking.Source(body, 100))
    assert await park.take(DIGEST, 99) is None
    assert body.is_closed
    assert await park.take(DIGEST, 100) is None


async def test_a_read_that_is_interrupted_keeps_what_it_brings():
    """The thread is still reading when the pull is cancelled."""
    loop, gate = asyncio.get_running_loop(), asyncio.Event()

    class Slow(Body):
        def read(self, size):
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
            return super().read(size)

    source, park = parking.Source(Slow(b"abcd"), 0), parking.Parking()
    reading = asyncio.create_task(source.peek(4))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    park.put(DIGEST, source)
    gate.set()
    again = await park.take(DIGEST, 0)
    assert again is source
    assert await again.peek(4) == b"abcd"


@pytest.mark.parametrize("failure", [None, RegistryFailed(Reason.STALLED, "nothing")])
async def test_the_end_before_its_time_is_a_failure_and_stays_one(failure):
    source = parking.Source(Body(b"", failure), 5)
    for _ in range(2):
        with pytest.raises(RegistryFailed):
            await source.peek(1)


async def test_what_is_parked_for_too_long_is_closed(monkeypatch):
    monkeypatch.setattr(parking, "PARK_SECONDS", 0.0)
    park, body = parking.Parking(), Body(b"x")
    park.put(DIGEST, parking.Source(body, 0))
    async with asyncio.timeout(30):
        while not body.is_closed:  # noqa: ASYNC110 -- the loop's own timer
            await asyncio.sleep(0.01)
    assert await park.take(DIGEST, 0) is None


async def test_the_second_of_one_blob_replaces_the_first():
    park, first, second = parking.Parking(), Body(b"x"), Body(b"x")
    park.put(DIGEST, parking.Source(first, 0))
    park.put(DIGEST, parking.Source(second, 0))
    assert (first.is_closed, second.is_closed) == (True, False)
    park.close()
    assert second.is_closed
