"""Tell nodes what to have ready and what to look up, and take their answers.

In: the book of the present term, views, answers of warmers. Out: a WarmList to each node that has a warmer, whenever it is
another than the last.

Invariants: only a leader tells, under its term; a node that is told nothing more is told so, with an empty list. A pull
secret is told once (core/showing.py); who leads no more keeps none.

Not here: any rule (core/readiness.py, likely.py, hints.py).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from admitter.core import hints, readiness, showing
from admitter.core.book import Book
from admitter.core.hints import Known
from admitter.core.readiness import Readiness
from admitter.model.content import Answer, Content, WarmList
from admitter.model.decision import Policy
from admitter.model.gang import Gang
from admitter.model.leadership import Guard
from admitter.model.nodecapacity import ClusterView
from admitter.publish.imagemetrics import ImageFigures
from admitter.sources.verify import Verifier
from muster.clock import Clock

_LOG = structlog.get_logger(__name__)

PAUSE_SECONDS = 0.05
LOOK_SECONDS = 1.0
HINT_SECONDS = 2.0
"""Between two plans: likely places cost a search each."""
PULL_SECONDS = 10.0
"""The first answer in so long brings the next plan forward: what images are is what a first plan lacks."""
TAG_SECONDS = 600.0
"""Between two looks at where a hinted tag points (images.md section 10)."""


class Feed(Protocol):
    """What this needs of the feed's hub."""

    def view(self) -> ClusterView: ...
    def send_warm(self, node: str, wanted: WarmList) -> None: ...


class Secrets(Protocol):
    """Who can read pull secrets."""

    @property
    def read(self) -> frozenset[tuple[str, str]]: ...

    def want(self, wanted: Mapping[str, frozenset[str]]) -> readiness.Secrets: ...


class WarmLoop:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        feed: Feed,
        book: Callable[[], Book | None],
        images: Readiness,
        guard: Guard,
        clock: Clock,
        policy: Policy,
        verifier: Verifier,
        wake: Callable[[], None],
        secrets: Secrets | None = None,
        figures: ImageFigures | None = None,
    ) -> None:
        """`wake` has the queue decided anew."""
        self._feed, self._book, self._images, self._guard = feed, book, images, guard
        self._clock, self._policy, self._verifier, self._wake_queue = clock, policy, verifier, wake
        self._secrets, self._figures = secrets, figures or ImageFigures()
        self._news = asyncio.Event()
        self._hints = hints.NOTHING
        self._hinted_at = self._pulled_at = float("-inf")
        self._sent: dict[str, showing.Sent] = {}
        self._term = 0
        images.note = self._news.set
        images.read = frozenset() if secrets is not None else None

    def hear(self, node: str, answers: tuple[Answer, ...]) -> None:
        """Take what a node's warmer says."""
        now = self._clock.monotonic()
        self._figures.heard(answers)
        if self._images.answered(node, answers, now):
            if now - self._pulled_at >= PULL_SECONDS:
                self._pulled_at, self._hinted_at = now, float("-inf")
            self._news.set()
            self._wake_queue()

    def left(self, node: str) -> None:
        """A node's stream has ended: the next one is told everything."""
        self._sent.pop(node, None)

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            self._news.clear()
            try:
                self.look_once()
            except Exception:  # noqa: BLE001 -- the loop's one broad catch; the next look tries again
                _LOG.exception("look at images failed")
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue

    def look_once(self) -> None:
        """Plan, and tell whoever is to hear something else."""
        book, now = self._book(), self._clock.monotonic()
        if book is None or not self._guard.may_write(book.terms.term):
            self._sent.clear()
            self._images.stand_by()
            self._figures.hints = hints.NOTHING
            if self._secrets is not None:
                self._secrets.want({})
            return
        if book.terms.term != self._term:
            self._term, self._hints = book.terms.term, hints.NOTHING
            self._sent.clear()
        view = self._feed.view()
        self._images.look(view)
        self._images.forget(record.key for record in book.waiting())
        if self._secrets is not None:
            self._images.secrets = self._secrets.want(_wanted_secrets(record.gang for record in book.waiting()))
            self._images.read = self._secrets.read
        if self._policy.images.registries and now - self._hinted_at >= HINT_SECONDS:
            self._hinted_at = now
            self._plan(book, now)
        self._tell(view, now)

    def _plan(self, book: Book, now: float) -> None:
        found = book.likely(self._images.held)
        for each in found:
            for name in readiness.names(each.gang):
                self._images.ask(each.gang.namespace, name, each.nodes, now, fresh_seconds=TAG_SECONDS)
        known = Known(
            starts=self._images.starts,
            is_verified=self._verifier.passes,
            is_refused=self._verifier.refuses,
            secrets=self._images.secrets,
        )
        before = self._hints
        self._hints = hints.plan(found, before, known, self._policy.images, now)
        self._images.refused, self._figures.hints = self._hints.refused, self._hints
        if self._hints.images != before.images:
            _LOG.info("hints", nodes=len(self._hints.images), images=sum(map(len, self._hints.images.values())))

    def _tell(self, view: ClusterView, now: float) -> None:
        questions = self._images.questions(now)
        for node, state in view.nodes.items():
            if state.warmth is None or state.snapshot_term != self._term:
                continue
            wanted = WarmList(
                term=self._term,
                images=self._hints.images.get(node, ()),
                questions=questions.get(node, ()),
            )
            before = self._sent.get(node, showing.NOTHING)
            self._sent[node], message = showing.show(wanted, before, state.warmth, self._images.secrets, now)
            if message is not None:
                self._feed.send_warm(node, message)
                self._figures.sent(message)


def _wanted_secrets(gangs: Iterable[Gang]) -> dict[str, frozenset[str]]:
    """Return the pull secrets that waiting pods name, by namespace."""
    found: dict[str, frozenset[str]] = {}
    for gang in gangs:
        contents: list[Content] = [podset.content for podset in gang.podsets]
        secrets = {name for content in contents for name in content.pull_secrets}
        if secrets:
            found[gang.namespace] = found.get(gang.namespace, frozenset()) | secrets
    return found
