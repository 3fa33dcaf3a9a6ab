"""An API server that is slow, refuses, forgets or falls silent while gangs are in flight: nothing is lost, and all starts after it.

Three gangs stand between the admitter and each illness: one that runs and ends meanwhile, one that is leased and only half let
go, one that waits for the first one's place.
"""

import asyncio
import dataclasses
import json
import time

import pytest
import structlog

from hack.cluster.faultproxy import Fault, FaultProxy
from muster.model import labels
from tests.admitter.kubegangs import create_gang, gated, held, pods, remove, running
from tests.admitter.kubetown import KubeTown, until

SHORT = {"lease_seconds": 3.0, "new_term_grace_seconds": 3.0, "lease_grace_seconds": 3.0}
_LOG = structlog.get_logger(__name__)
HOLD_SECONDS = 3.0
MOST_PER_SECOND = 40
"""Of one admitter: each of ten watches is opened once a second at most and listed as often, the election asks four times."""
HALF = Fault(method="PATCH", path="/pods/half-1$", status=503)
BUT_LEASES = "^(?!.*/leases/)"
SHUT = None

ENDS_LEADERSHIP = {
    "answers later than the lease": Fault(delay_seconds=3.0),
    "429 to everything": Fault(status=429, headers={"Retry-After": "1"}),
    "500 to everything": Fault(status=500),
    "503 to everything": Fault(status=503),
    "every connection is cut": Fault(is_cut=True),
    "nobody listens": SHUT,
    "accepts and never answers": Fault(is_silent=True),
}
LEAVES_LEADERSHIP = {
    "every answer is late": Fault(delay_seconds=0.6),
    "429 to all but the election": Fault(path=BUT_LEASES, status=429, headers={"Retry-After": "1"}),
    "a conflict on every pod": Fault(method="PATCH", path="/pods/", status=409),
    "a webhook of pods that fails": Fault(method="PATCH", path="/pods/", status=500),
    "what is asked of pods is done and not answered": Fault(method="PATCH", path="/pods/", is_lost=True),
    "watches are refused": Fault(is_watch=True, status=503),
    "watches are gone": Fault(is_watch=True, status=410),
    "watches expire at their first word": Fault(is_watch=True, is_expired=True),
    "watches fall silent": Fault(is_watch=True, is_silent=True),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The three gangs, and what must be true of them at any moment."""

    town: KubeTown
    uids: dict[str, str]

    def check(self):
        """Nothing is destroyed, and no pod is without its gate that has no lease."""
        there = {pod.metadata.name: pod for pod in pods(self.town, "")}
        for name, uid in self.uids.items():
            pod = there[name]
            assert pod.metadata.uid == uid, f"{name} was ended"
            assert pod.metadata.deletionTimestamp is None
            assert pod.spec.schedulingGates or pod.metadata.annotations[labels.LEASE.full]

    def leases(self, prefix):
        return {pod.metadata.annotations[labels.LEASE.full] for pod in pods(self.town, prefix)}

    def logged(self, kind, prefix):
        """Decisions of a kind about a gang."""
        lines = (self.town.folder / "decisions.jsonl").read_text().splitlines()
        entries = map(json.loads, lines)
        gang = f"{self.town.namespace}/{prefix}"
        return [entry for entry in entries if entry["kind"] == kind and entry["gang"] == gang]


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


async def begin(town, admitter, proxy):
    """One gang runs, one is half let go, one waits."""
    create_gang(town, "first", 2)
    await until(lambda: len(running(town, "first")) == 2, "the first gang")
    proxy.inflict(HALF)
    create_gang(town, "half", 2)
    await until(lambda: len(held(town, "half")) == 1, "one of the second gang to be let go")
    await until(lambda: len(running(town, "half")) == 1, "that one to run")
    create_gang(town, "waits", 2)
    key = f"{town.namespace}/waits"
    await until(lambda: (found := admitter._loop.record(key)) is not None and found.why is not None, "the third gang")
    return Story(
        town=town,
        uids={pod.metadata.name: pod.metadata.uid for pod in pods(town, "") if "first" not in pod.metadata.name},
    )


async def suffer(admitter, proxy, fault, story):
    """Be ill for a while, during which the first gang ends; return requests a second."""
    asked, since = sum(admitter._kube.api.requests.values()), time.monotonic()
    if fault is SHUT:
        await proxy.shut()
    else:
        proxy.inflict(fault)
    await asyncio.to_thread(remove, story.town, "first")
    while time.monotonic() - since < HOLD_SECONDS:
        await asyncio.to_thread(story.check)
        await asyncio.sleep(0.2)
    return (sum(admitter._kube.api.requests.values()) - asked) / (time.monotonic() - since)


async def recover(proxy, fault, story):
    """Be well again: both gangs start as they are, each under its one lease."""
    await proxy.heal()
    if fault is SHUT:
        await proxy.open()
    await until(lambda: len(running(story.town, "half")) == 2, "the second gang")
    await until(lambda: len(running(story.town, "waits")) == 2, "the third gang")
    story.check()
    for name in ("half", "waits"):
        assert len(story.leases(name)) == 1
        assert {entry["lease_id"] for entry in story.logged("leased", name)} == story.leases(name)
        assert not story.logged("refused", name), "the API server's illness is nobody's refusal"
        assert not story.logged("replanned", name)
    assert len({pod.spec.nodeName for pod in pods(story.town, "")}) == 4
    # The next case has the same four nodes.
    remove(story.town, "")


@pytest.mark.parametrize("illness", ENDS_LEADERSHIP)
async def test_what_ends_the_leadership_ends_nothing_else(town, client, tmp_path, illness):
    fault = ENDS_LEADERSHIP[illness]
    async with (
        FaultProxy(town.cluster.kubeconfig, tmp_path) as proxy,
        gated(town, client, kubeconfig=proxy.kubeconfig, **SHORT) as admitter,
    ):
        story = await begin(town, admitter, proxy)
        term = admitter._loop.term
        rate = await suffer(admitter, proxy, fault, story)
        await until(lambda: admitter._loop.term == 0, "the leadership to be over")
        assert not admitter._kube.elector.may_write(term)
        await recover(proxy, fault, story)
        assert admitter._loop.term > term
        _LOG.info("asked", illness=illness, requests_per_second=round(rate, 1))
        assert rate < MOST_PER_SECOND


@pytest.mark.parametrize("illness", LEAVES_LEADERSHIP)
async def test_what_leaves_the_leadership_is_waited_out_in_the_same_term(town, client, tmp_path, illness):
    fault = LEAVES_LEADERSHIP[illness]
    async with (
        FaultProxy(town.cluster.kubeconfig, tmp_path) as proxy,
        gated(town, client, kubeconfig=proxy.kubeconfig, **SHORT) as admitter,
    ):
        story = await begin(town, admitter, proxy)
        term = admitter._loop.term
        rate = await suffer(admitter, proxy, fault, story)
        await recover(proxy, fault, story)
        assert admitter._loop.term == term
        _LOG.info("asked", illness=illness, requests_per_second=round(rate, 1))
        assert rate < MOST_PER_SECOND
