"""Take one decision over the whole queue, from one supply.

Input: the waiting gangs, what the nodes can give, what they could ever give. Output: an answer for every gang.

Order: priority, then first come. The first gang in that order that has no place becomes the head; nobody behind it may
take units of a resource that it could use on that node, so it cannot be overtaken for ever. A gang larger than the fleet
could ever serve holds nobody up.

Why so strict: without a runtime estimate any smaller gang could delay the head. Backfill that cannot delay it (EASY,
topology.md section 5.3) needs `max_runtime` and the running gangs' ends, and replaces the one line that sets the units aside.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from admitter.core import admit, explain, offers
from admitter.model.decision import Explanation, Grant, Policy
from admitter.model.gang import Gang
from admitter.model.supply import Supply


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A gang that waits."""

    gang: Gang
    arrival: int
    """Rises with every gang that asks."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    gang: Gang
    answer: Grant | Explanation


def queue(asks: Iterable[Ask]) -> list[Ask]:
    """Return the gangs in the order in which they are served."""
    return sorted(asks, key=lambda ask: (-ask.gang.priority, ask.arrival))


def decide(asks: Iterable[Ask], supply: Supply, ideal: Supply, policy: Policy) -> tuple[Answer, ...]:
    """Answer every gang of the queue, in order."""
    answers: list[Answer] = []
    open_supply = supply
    head: Gang | None = None
    position = 0
    for ask in queue(asks):
        plan = admit.plan(ask.gang, open_supply, policy)
        if isinstance(plan, Grant):
            supply, open_supply = offers.less(supply, plan.placements), offers.less(open_supply, plan.placements)
            answers.append(Answer(gang=ask.gang, answer=plan))
            continue
        position += 1
        if head is None:
            answers.append(Answer(gang=ask.gang, answer=explain.shortfall(ask.gang, plan, position, policy)))
        else:
            answers.append(Answer(gang=ask.gang, answer=_refusal(ask.gang, supply, head, position, policy)))
        if head is None and isinstance(admit.plan(ask.gang, ideal, policy), Grant):
            head = ask.gang
            open_supply = offers.without(open_supply, admit.may_use(head, open_supply, policy), head.full_name)
    return tuple(answers)


def closed(asks: Sequence[Ask], opens_at: float, detail: str) -> tuple[Answer, ...]:
    """Answer every gang while a new term grants nothing."""
    return tuple(
        Answer(gang=ask.gang, answer=explain.new_term(ask.gang, position, opens_at, detail))
        for position, ask in enumerate(queue(asks), start=1)
    )


def _refusal(gang: Gang, supply: Supply, head: Gang, position: int, policy: Policy) -> Explanation:
    """Explain by the whole supply: what is kept for the head counts only if it is all that is missing."""
    plan = admit.plan(gang, supply, policy)
    if isinstance(plan, Grant):
        return explain.behind(gang, head, position)
    return explain.shortfall(gang, plan, position, policy)
