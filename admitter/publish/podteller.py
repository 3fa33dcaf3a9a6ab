"""Say on pods, and on what makes them, what the gate adapter says of each gang: a condition, and an Event with each change.

In: a gang's newest word. Out: requests, as many as core/podwords.py lets through. A word that got no answer is written later, or
the newer one that the adapter has by then; one that is refused for good is not.

Invariants: no name of another namespace's objects stands in it. A word is written in the term it was said in, or not at all.

Not here: when a word is due (core/podwords.py), the requests' form (podconditions.py, pods.py).
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping

import structlog
from lightkube.models import core_v1

from admitter.core import podwords, redaction
from admitter.model.cluster import Owner
from admitter.model.group import Group
from admitter.model.hold import HoldReason, Told
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
        self._said: dict[str, podwords.Word] = {}
        """Since the last look."""
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
        if term != self._term:
            # What was to be said in an earlier term is nobody's word any more.
            self._words, self._said, self._term = podwords.empty(self._monotonic()), {}, term
        # Whoever may read the pod need not know who else there is.
        told = dataclasses.replace(told, summary=redaction.redacted(told.summary, {group.namespace}))
        is_aside = told.reason == HoldReason.DEADLINE_RUNS
        word = podwords.Word(namespace=group.namespace, pod=pod, owner=owner, told=told, is_aside=is_aside)
        self._said[f"{group.key} {told.reason}" if is_aside else group.key] = word

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            said, self._said, term = self._said, {}, self._term
            words = podwords.said(self._words, said) if said else self._words
            self._words, due = podwords.due(words, self._monotonic())
            lost: dict[str, podwords.Word] = {}
            for key, word in due:
                # Without an answer to one of them nobody asks for the others: each would wait for its own.
                if lost or not await self._is_written(word, term):
                    lost[key] = word
            if lost and term == self._term:
                self._words = podwords.failed(self._words, lost, self._monotonic())
            await asyncio.sleep(LOOK_SECONDS)

    async def _is_written(self, word: podwords.Word, term: int) -> bool:
        """Write one; False: there was no answer, and it is worth another try."""
        try:
            return await self._write(word, term)
        except Exception:  # noqa: BLE001 -- the loop's one broad catch; the gang's next word is written anew
            _LOG.exception("a gang's word was not written")
            return True

    async def _write(self, word: podwords.Word, term: int) -> bool:
        pod, told = word.pod, word.told
        about = []
        if pod is not None:
            about.append(Owner(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid))
        if pod is not None and not word.is_aside:
            status = "True" if word.is_placed else "False"
            if not _is_answered(
                *await self._conditions.set(pod, labels.PLACED, status, told.reason, word.message, term)
            ):
                return False
        if word.owner is not None and word.owner.uid:
            about.append(word.owner)
        for each in about:
            reference = core_v1.ObjectReference(
                apiVersion=each.api_version, kind=each.kind, name=each.name, namespace=word.namespace, uid=each.uid
            )
            is_warning = not word.is_placed
            if not _is_answered(
                *await self._writer.note(reference, told.reason, told.summary, term, is_warning=is_warning)
            ):
                return False
        return True


def _is_answered(outcome: Outcome, detail: str) -> bool:
    if outcome not in (Outcome.DONE, Outcome.NOT_LEADING, Outcome.GONE):
        _LOG.warning("a gang's word was not written", outcome=outcome.value, detail=detail)
    return outcome not in (Outcome.BUSY, Outcome.CONFLICT)
