"""Between the feed and the warmer: what the obeyed admitter wants goes down, what the warmer answers goes up.

In: WarmLists of the obeyed admitter, the node's pods. Out: `Tell` and `Resolve` calls; answers for the feed.

Invariants: the newest list replaces the one before, so that what the admitter takes back is given up. A warmer that was
away is told anew, and at least every `REPEAT_SECONDS`: it forgets at each start. A question is asked once; its answer goes
to whoever is obeyed then. A credential is passed on once, heard or not, and not kept: a warmer says what it misses.

Not here: who is obeyed (publish/feed.py), what a warmer may follow (warmer/serve.py).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from agent.sources import warmer
from muster.model import kube
from muster.model.reading import Known, Reading, Unknown
from muster.pb.muster.v1 import feed_pb2
from muster.pb.muster.warmer.v1 import warmer_pb2

_LOG = structlog.get_logger(__name__)

REPEAT_SECONDS = 10.0
MAX_ASKED = 256
"""Questions under way at once."""

LONGEST_START_SECONDS = 600.0
"""A pod that we have seen starting for so long is stuck, with a volume that is missing for one; a pull of its own the warmer hears
from containerd. Its creation says nothing: it may have waited for its node for days."""
_GETS_ON = ("", "ContainerCreating", "PodInitializing")
"""The kubelet's reasons of a wait that is not a failure; after one it tries again, for days."""
_WAITING = kube.ContainerState.WAITING


class Warmer(Protocol):
    """What the relay needs of the warmer's client."""

    async def tell(self, request: warmer_pb2.TellRequest) -> str: ...
    async def resolve(self, request: warmer_pb2.ResolveRequest) -> warmer_pb2.ResolveResponse: ...


class WarmRelay:
    """Belongs to one event loop."""

    def __init__(
        self,
        teller: Warmer,
        answer: Callable[[feed_pb2.ImageAnswer], None],
        pods: Callable[[], Reading[tuple[kube.Pod, ...]]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pods` are the node's as the slice stands now: Unknown once it is too old."""
        self._warmer, self._answer, self._pods, self._monotonic = teller, answer, pods, monotonic
        self._list = feed_pb2.WarmList()
        self._starting = 0
        self._seen_at: dict[str, float] = {}
        """Uid of each pod that is starting -> when it was first seen so."""
        self._news = asyncio.Event()
        self._asked: frozenset[tuple[int, int]] = frozenset()
        """Term and id of the newest list's questions, once they were asked."""
        self._asking: set[asyncio.Task[None]] = set()
        self._is_away = False

    def hear(self, wanted: feed_pb2.WarmList) -> None:
        """Take the obeyed admitter's list."""
        self._list = wanted
        self._news.set()

    def look(self) -> None:
        """Look at the node's pods: our pulls stand back while containers of theirs are being created."""
        if self._count_starting() != self._starting:
            self._news.set()

    def _count_starting(self) -> int:
        match self._pods():
            case Known(pods):
                now = self._monotonic()
                self._seen_at = {pod.uid: self._seen_at.get(pod.uid, now) for pod in pods if is_starting(pod)}
                return sum(now - seen_at < LONGEST_START_SECONDS for seen_at in self._seen_at.values())
            case Unknown():
                return 0

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
        self._starting = self._count_starting()
        request = warmer_pb2.TellRequest(starting_pods=self._starting)
        for image in self._list.images:
            hint = request.hints.add(reference=image.reference, platform=image.platform, secret=image.secret)
            if image.HasField("credential"):
                hint.credential.CopyFrom(image.credential)
                image.ClearField("credential")
        return request

    def _ask(self) -> None:
        questions = {(self._list.term, question.id): question for question in self._list.questions}
        for question in (each for key, each in questions.items() if key not in self._asked):
            request = warmer_pb2.ResolveRequest(reference=question.reference)
            if question.HasField("credential"):
                request.credential.CopyFrom(question.credential)
                question.ClearField("credential")
            if len(self._asking) >= MAX_ASKED:
                # Later it would be asked without its credential, and the answer be taken for one with it.
                said = f"{MAX_ASKED} other questions are open"
                self._answer(feed_pb2.ImageAnswer(id=question.id, reason=warmer.UNAVAILABLE, detail=said))
                continue
            task = asyncio.create_task(self._resolve(question.id, request))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        self._asked = frozenset(questions)

    async def _resolve(self, number: int, request: warmer_pb2.ResolveRequest) -> None:
        found = await self._warmer.resolve(request)
        self._answer(
            feed_pb2.ImageAnswer(
                id=number,
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
        and all(container.reason in _GETS_ON for container in pod.containers if container.state is _WAITING)
    )
