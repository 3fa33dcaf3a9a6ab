"""Between the feed and the warmer: what the obeyed admitter wants goes down, what the warmer answers goes up.

In: WarmLists of the obeyed admitter, the node's pods. Out: `Tell` and `Resolve` calls; answers for the feed.

Invariants: the newest list replaces the one before, so that what the admitter takes back is given up. A warmer that was
away is told anew, and at least every `REPEAT_SECONDS`: it forgets at each start. A question is asked once; its answer goes to whoever is obeyed then.
Credentials are passed on and kept nowhere but in the newest list.

Not here: who is obeyed (publish/feed.py), what a warmer may follow (warmer/serve.py).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from muster.model import kube
from muster.pb.muster.v1 import feed_pb2
from muster.pb.muster.warmer.v1 import warmer_pb2

_LOG = structlog.get_logger(__name__)

REPEAT_SECONDS = 10.0
MAX_ASKED = 256
"""Ids remembered, and questions under way at once."""


class Warmer(Protocol):
    """What the relay needs of the warmer's client."""

    async def tell(self, request: warmer_pb2.TellRequest) -> str: ...
    async def resolve(self, request: warmer_pb2.ResolveRequest) -> warmer_pb2.ResolveResponse: ...


class WarmRelay:
    """Belongs to one event loop."""

    def __init__(self, warmer: Warmer, answer: Callable[[feed_pb2.ImageAnswer], None]) -> None:
        self._warmer, self._answer = warmer, answer
        self._list = feed_pb2.WarmList()
        self._starting = 0
        self._news = asyncio.Event()
        self._asked: dict[tuple[int, int], None] = {}
        """Term and id of questions that were asked, oldest first."""
        self._asking: set[asyncio.Task[None]] = set()
        self._is_away = False

    def hear(self, wanted: feed_pb2.WarmList) -> None:
        """Take the obeyed admitter's list."""
        self._list = wanted
        self._news.set()

    def see(self, pods: Iterable[kube.Pod]) -> None:
        """Take the node's pods: our pulls stand back while containers of theirs are being created."""
        starting = sum(is_starting(pod) for pod in pods)
        if starting != self._starting:
            self._starting = starting
            self._news.set()

    async def run(self) -> None:
        """Relay until cancelled."""
        try:
            while True:
                self._news.clear()
                self._ask()
                away = await self._warmer.tell(self._told())
                if bool(away) is not self._is_away:
                    self._is_away = bool(away)
                    _LOG.info("the warmer is told what is wanted", away=away)
                try:
                    async with asyncio.timeout(REPEAT_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._asking:
                task.cancel()
            await asyncio.gather(*self._asking, return_exceptions=True)

    def _told(self) -> warmer_pb2.TellRequest:
        request = warmer_pb2.TellRequest(starting_pods=self._starting)
        for image in self._list.images:
            request.hints.add(reference=image.reference, platform=image.platform)
        return request

    def _ask(self) -> None:
        for question in self._list.questions:
            key = (self._list.term, question.id)
            if key in self._asked or len(self._asking) >= MAX_ASKED:
                continue
            self._asked[key] = None
            while len(self._asked) > MAX_ASKED:
                del self._asked[next(iter(self._asked))]
            task = asyncio.create_task(self._resolve(question))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _resolve(self, question: feed_pb2.ImageQuestion) -> None:
        request = warmer_pb2.ResolveRequest(reference=question.reference)
        if question.HasField("credential"):
            request.credential.CopyFrom(question.credential)
        found = await self._warmer.resolve(request)
        self._answer(
            feed_pb2.ImageAnswer(
                id=question.id,
                digest=found.digest,
                reason=found.reason,
                detail=found.detail,
                bytes_total=found.bytes_total,
                layers=found.layers,
            )
        )


def is_starting(pod: kube.Pod) -> bool:
    """Return whether the kubelet is creating the pod's first containers, or pulls for them."""
    return (
        pod.phase is kube.PodPhase.PENDING
        and pod.deletion_at is None
        and not any(container.state is kube.ContainerState.RUNNING for container in pod.containers)
    )
