"""A client names members no faster than the admitter likes."""

import asyncio

from admitter.services import wordbudget
from admitter.services.admission import AdmissionService
from admitter.services.wordbudget import WordBudget
from muster.pb.muster.v1.admission_pb2 import AdmitRequest, Member
from tests.admitter.clusters import a_gang


def rests(words, pods):
    budget = WordBudget(pods)
    return sum(budget.spend(uid) for uid in words)


def test_a_stream_rests_after_so_many_new_members():
    words = [f"u{index}" for index in range(10 * wordbudget.BUDGET)]
    assert rests(words[: wordbudget.BUDGET - 1], len(words)) == 0
    assert rests(words, len(words)) == 10


def test_who_names_the_same_or_more_than_the_gang_has_rests_sooner():
    dear = wordbudget.BUDGET // wordbudget.DEAR
    assert rests(["u"] * (1 + 10 * dear), 5) == 10
    assert rests([f"u{index}" for index in range(1 + 10 * dear)], 1) == 10


def test_what_is_remembered_is_no_more_than_the_gang():
    budget = WordBudget(3)
    for index in range(100):
        budget.spend(f"u{index}")
    assert len(budget._named) == 3


class Desk:
    """Takes every member."""

    def __init__(self):
        self.joined = []

    def join(self, attachment, member):
        self.joined.append((attachment, member.uid))


async def test_a_stream_that_floods_is_read_no_faster_and_loses_nothing(monkeypatch):
    rests, sleep = [], asyncio.sleep

    async def rest(seconds):
        rests.append(seconds)
        await sleep(0)

    async def words(count):
        for index in range(count):
            yield AdmitRequest(member=Member(podset="main", uid=f"u{index}", node="n1"))

    monkeypatch.setattr(asyncio, "sleep", rest)
    desk = Desk()
    service = AdmissionService(desk, lambda: 0.0, None)
    count = 3 * wordbudget.BUDGET
    assert await service._listen(words(count), "attachment", a_gang(count=count)) == ""
    assert desk.joined == [("attachment", f"u{index}") for index in range(count)]
    assert rests == [wordbudget.REST_SECONDS] * 3
