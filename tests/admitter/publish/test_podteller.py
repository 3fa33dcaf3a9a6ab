"""What goes on pods says nothing of other tenants, and nothing of an earlier term."""

import asyncio

from admitter.core import podwords
from admitter.model.hold import Told
from admitter.publish import podteller
from admitter.publish.nodes import Outcome
from admitter.publish.podteller import PodTeller
from tests.admitter.grouppods import a_group, a_pod


class Pad:
    """Writes down what is to be written on pods and as Events."""

    def __init__(self):
        self.conditions, self.events = [], []

    async def set(self, pod, key, status, reason, message, term):
        self.conditions.append((pod.name, reason, message, term))
        return Outcome.DONE, ""

    async def note(self, regarding, reason, text, term, *, is_warning):
        self.events.append((regarding.name, reason, text, term))
        return Outcome.DONE, ""


async def written(*words):
    """Say (gang, summary, term, reason) each, and return what one look writes."""
    pad = Pad()
    teller = PodTeller(pad, pad, lambda: 0.0)
    for name, summary, term, *reason in words:
        group = a_group([a_pod(name, labels={"muster.dev/gang": name})])
        teller.say(Told(reason=reason[0] if reason else "Reserved", summary=summary), group, {}, term)
    running = asyncio.create_task(teller.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    return pad


async def test_other_tenants_are_not_named_on_pods():
    pad = await written(("a", "would take units kept for team-b/train, before team-a/other; 8 nvidia.com/gpu", 1))
    text = "would take units kept for (hidden), before team-a/other; 8 nvidia.com/gpu"
    assert pad.conditions == [("a", "Reserved", text, 1)]
    assert pad.events == [("a", "Reserved", text, 1)]


async def test_words_of_an_earlier_term_are_not_written_in_the_new_one():
    pad = await written(("a", "old", 1), ("b", "new", 2))
    assert pad.conditions == [("b", "Reserved", "new", 2)]


async def test_a_deadline_that_runs_is_said_beside_why_it_waits():
    pad = await written(("a", "588 s are left", 1, "DeadlineRuns"), ("a", "needs 16 GPUs", 1))
    assert pad.conditions == [("a", "Reserved", "needs 16 GPUs", 1)]
    assert sorted(pad.events) == [("a", "DeadlineRuns", "588 s are left", 1), ("a", "Reserved", "needs 16 GPUs", 1)]


class Ill(Pad):
    """Answers nobody until it is healed."""

    is_ill = True

    async def set(self, pod, key, status, reason, message, term):
        await super().set(pod, key, status, reason, message, term)
        return (Outcome.BUSY if self.is_ill else Outcome.DONE), ""


async def test_a_word_that_got_no_answer_is_written_after_the_outage_and_the_newest_only(monkeypatch):
    monkeypatch.setattr(podteller, "LOOK_SECONDS", 0.0)
    pad, now = Ill(), [0.0]
    teller = PodTeller(pad, pad, lambda: now[0])

    async def turns():
        for _ in range(20):
            await asyncio.sleep(0)

    def say(reason, summary):
        for name in ("a", "b", "c"):
            group = a_group([a_pod(name, labels={"muster.dev/gang": name})])
            teller.say(Told(reason=reason, summary=summary), group, {}, 1)

    running = asyncio.create_task(teller.run())
    say("Reserved", "waits")
    await turns()
    assert (len(pad.conditions), pad.events) == (1, []), "one is tried, the others wait with it"
    say("Released", "all its pods have their places")
    await turns()
    assert len(pad.conditions) == 2
    pad.is_ill, pad.conditions = False, []
    await turns()
    assert not pad.conditions
    now[0] += podwords.AGAIN_SECONDS
    await turns()
    running.cancel()
    assert [(name, reason) for name, reason, *_ in pad.conditions] == [(name, "Released") for name in "abc"]
    assert len(pad.events) == 3
