"""When a reader must be replaced, and by whom."""

import dataclasses

import pytest

from agent.sources import hungreader


@dataclasses.dataclass(kw_only=True)
class Client:
    silent_since: float | None = None
    stuck_since: float | None = None
    unanswered_since: float | None = None
    asked: tuple = ()

    async def exit(self, reason):
        self.asked += (reason,)
        return True


@dataclasses.dataclass(kw_only=True)
class Child:
    started_at: float | None = None
    replaced: int = 0

    def replace(self):
        self.replaced += 1
        return True


def test_nothing_to_complain_of():
    assert hungreader.Watchdog(Client()).complaint(1e6) == ""
    assert hungreader.Watchdog(Client(silent_since=100.0)).complaint(129.0) == ""
    assert hungreader.Watchdog(Client(stuck_since=100.0)).complaint(699.0) == ""


def test_a_silent_driver_and_a_stuck_device_each_have_their_time():
    assert "driver" in hungreader.Watchdog(Client(silent_since=100.0)).complaint(130.0)
    assert "device" in hungreader.Watchdog(Client(stuck_since=100.0)).complaint(700.0)


def test_a_child_is_not_blamed_for_the_silence_before_it():
    watchdog = hungreader.Watchdog(Client(silent_since=100.0), Child(started_at=120.0))
    assert watchdog.complaint(149.0) == ""
    assert watchdog.complaint(150.0) != ""


def test_while_nvml_is_closed_only_a_reader_that_answers_nothing_is_hung():
    """The other two stand where the closing found them."""
    old = hungreader.Watchdog(Client(silent_since=0.0, stuck_since=0.0))
    assert old.complaint(1e6, nvml_closed=True) == ""
    mute = hungreader.Watchdog(Client(unanswered_since=100.0), Child(started_at=110.0))
    assert mute.complaint(139.0, nvml_closed=True) == ""
    assert "nothing at all" in mute.complaint(140.0, nvml_closed=True)


async def test_a_child_is_killed_and_a_container_is_asked():
    client, child = Client(), Child()
    assert await hungreader.Watchdog(client, child).replace("why")
    assert (client.asked, child.replaced) == ((), 1)
    assert await hungreader.Watchdog(client).replace("why")
    assert client.asked == ("why",)


@pytest.mark.parametrize(
    ("since", "expected"),
    [(None, ""), (100.0, "the reader has answered nothing for 31.0 s"), (101.0, "")],
    ids=["it answers", "longer than the limit", "as long as the limit"],
)
def test_silence_is_told_once_it_is_longer_than_the_limit(since, expected):
    client = Client(unanswered_since=since)
    assert hungreader.silence(client, 131.0, 30.0) == expected
