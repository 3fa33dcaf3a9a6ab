"""Say on pods, and on what makes them, what the gate adapter says of each gang: a condition, and an Event with each change.

In: a gang's newest word. Out: requests, as many as core/podwords.py lets through. A word that could not be written is said
again when the adapter has a newer one.

Not here: when a word is due (core/podwords.py), the requests' form (podconditions.py, pods.py).
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog
from lightkube.models import core_v1

from admitter.core import podwords
from admitter.model.cluster import Owner
from admitter.model.group import Group
from admitter.model.hold import Told
from admitter.publish.nodes import Outcome
from admitter.publish.podconditions import PodConditionWriter
from admitter.publish.pods import PodWriter
from muster.model import labels

_LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2


class PodTeller:
    """Belongs to one event loop."""

    def __init__(self, writer: PodWriter, conditions: PodConditionWriter, monotonic: Callable[[], float]) -> None:
        self._writer, self._conditions, self._monotonic = writer, conditions, monotonic
        self._words = podwords.empty(monotonic())
        self._term = 0

    def say(
        self,
        told: Told,
        group: Group,
        owners: Mapping[str, Owner | None],
        term: int,
        paused: Owner | None = None,
    ) -> None:
        """Take a gang's newest word; `paused` makes its pods, where none of them is there."""
        pod = group.members[0].pod if group.members else None
        owner = owners.get(pod.uid) if pod is not None else paused
        if pod is None and owner is None:
            return
        self._term = term
        word = podwords.Word(namespace=group.namespace, pod=pod, owner=owner, told=told)
        self._words = podwords.said(self._words, group.key, word)

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            self._words, due = podwords.due(self._words, self._monotonic())
            for _, word in due:
                try:
                    await self._write(word, self._term)
                except Exception:  # noqa: BLE001 -- the loop's one broad catch; the gang's next word is written anew
                    _LOG.exception("a gang's word was not written")
            await asyncio.sleep(LOOK_SECONDS)

    async def _write(self, word: podwords.Word, term: int) -> None:
        pod, told = word.pod, word.told
        about = []
        if pod is not None:
            status = "True" if word.is_placed else "False"
            _log(*await self._conditions.set(pod, labels.PLACED, status, told.reason, word.message, term))
            about.append(Owner(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid))
        if word.owner is not None and word.owner.uid:
            about.append(word.owner)
        for each in about:
            reference = core_v1.ObjectReference(
                apiVersion=each.api_version, kind=each.kind, name=each.name, namespace=word.namespace, uid=each.uid
            )
            is_warning = not word.is_placed
            _log(*await self._writer.note(reference, told.reason, told.summary, term, is_warning=is_warning))


def _log(outcome: Outcome, detail: str) -> None:
    if outcome not in (Outcome.DONE, Outcome.NOT_LEADING, Outcome.GONE):
        _LOG.warning("a gang's word was not written", outcome=outcome.value, detail=detail)
