"""Take one decision over the whole queue, from one supply.

Input: the waiting gangs, what the nodes can give now and could ever give, what every gang holds and until when, what was
remembered. Output: an answer for every gang, what to remember, and when the answer can change by itself.

Order: priority, then first come; a gang that has waited for `ageing_seconds` goes before all that have not. The first gang
that finds no place, and could ever have one, gets a reservation (shadow.py). Whoever comes after it takes what the
reservation leaves for ever, or anything that it says to give back before the reservation starts (EASY backfill).

Invariants: a gang that passes cannot delay the reservation, if it ends when it said; a namespace that ran longer than it
said has no such right for a while. A gang that could never fit, is on strike, or is at its namespace's limit holds nobody up.
A refused kind of gang is refused for the rest of the pass: what is there only gets less. Nobody looks for a place for a kind
that is known to fit nowhere; and of one namespace's other kinds that find none, no more are tried than behind the head.

Not here: the strikes (standing.py holds their outcome), and preemption: there is none.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from admitter.core import admit, domains, explain, failing, holdings, returns, shadow, signature
from admitter.core.depth import Depth
from admitter.core.prospects import Prospects
from admitter.core.returns import Future, Returns
from admitter.core.starting import Starts
from admitter.core.supply import Supply
from admitter.core.table import Numbers
from admitter.model.decision import Explanation, Grant, Policy, Shortfall
from admitter.model.gang import Gang, GpuRequest
from admitter.model.queue import Ask, Holding, QueueState, Reservation, runtime_seconds
from muster.model import codec
from muster.model.vocabulary import WaitReason

GOES_ON_SECONDS = 1.0
"""After a pass that came to its bound: 200 kinds that fit nowhere are a quarter of a second's work (0.7 ms each, twice)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    gang: Gang
    answer: Grant | Explanation


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a decision looks at, beside the queue."""

    supply: Supply
    ideal: Supply
    """What the nodes could give if all were idle and well."""
    holdings: tuple[Holding, ...] = ()
    starts: Starts | None = None
    """How soon gangs start where; None: nobody knows."""
    now: float

    def penalty(self, gang: Gang) -> Numbers | None:
        """Return what slow starts count for, by row."""
        return None if self.starts is None else self.starts.penalty(gang, self.supply.table)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    answers: tuple[Answer, ...]
    state: QueueState
    again_at: float | None
    """When the same question can get another answer."""


class Memory:
    """What is worked out once and used on many passes; nothing in it changes an answer."""

    def __init__(self) -> None:
        self.prospects = Prospects()
        self.returns = Returns()


def queue(asks: Iterable[Ask], policy: Policy, now: float) -> list[Ask]:
    """Return the gangs in the order in which they are served."""
    return sorted(asks, key=lambda ask: (not _is_aged(ask, policy, now), -ask.gang.priority, ask.asked_at, ask.arrival))


def decide(
    asks: Sequence[Ask],
    scene: Scene,
    policy: Policy,
    state: QueueState | None = None,
    memory: Memory | None = None,
) -> Outcome:
    """Answer every gang of the queue, in order; what one that is away would get is kept from the others in this pass."""
    known = QueueState() if state is None else state
    turn = _Pass(scene, policy, _renewed(known, scene, policy), memory or Memory())
    every = list(failing.answered(queue(asks, policy, scene.now), turn.answer))
    answers = tuple(answer for ask, answer in every if not ask.is_away)
    after = dataclasses.replace(turn.state, reservation=turn.reservation)
    moments = [_again_at(asks, scene, policy, after), turn.goes_on_at]
    again_at = min((moment for moment in moments if moment is not None), default=None)
    return Outcome(answers=answers, state=after, again_at=again_at)


def closed(
    asks: Sequence[Ask],
    policy: Policy,
    now: float,
    opens_at: float | None,
    detail: str,
    reason: WaitReason = WaitReason.NEW_TERM,
) -> tuple[Answer, ...]:
    """Answer every gang while a new term grants nothing, or while admission pauses."""
    return tuple(
        Answer(gang=ask.gang, answer=explain.new_term(ask.gang, position, opens_at, detail, reason))
        for position, ask in enumerate(queue([ask for ask in asks if not ask.is_away], policy, now), start=1)
    )


class _Pass:
    """One walk down the queue."""

    def __init__(self, scene: Scene, policy: Policy, state: QueueState, memory: Memory) -> None:
        self.state = state
        self.reservation: Reservation | None = None
        self._scene = scene
        self._policy = policy
        self._memory = memory
        memory.prospects.begin(scene.ideal)
        self._now = scene.supply
        self._spare: Supply | None = None
        """What the reservation leaves, free or not."""
        self._open = scene.supply
        """What anybody may take."""
        self._head: Gang | None = None
        self._position = 0
        self._failed: dict[object, Shortfall] = {}
        self._depth = Depth(policy)
        self._future: Future | None = None
        self._granted: list[Holding] = []
        """Places of this pass: who is blocked by them waits for them as for any other."""
        self._leased = holdings.leased_gpus(scene.holdings, policy) if policy.queue.namespace_limits else {}

    def answer(self, ask: Ask) -> Answer:
        """Return a place for the gang, or why it waits."""
        grant = self._grant(ask)
        if grant is not None:
            return Answer(gang=ask.gang, answer=grant)
        self._position += 1
        return Answer(gang=ask.gang, answer=self._refusal(ask))

    @property
    def goes_on_at(self) -> float | None:
        """Return when the next pass comes further, because this one has learned what fits nowhere."""
        comes_further = self._depth.is_cut and self._memory.prospects.has_learned
        return self._scene.now + GOES_ON_SECONDS if comes_further else None

    def _grant(self, ask: Ask) -> Grant | None:
        gang = ask.gang
        if ask.standing.not_before > self._scene.now or self._over_limit(gang) is not None:
            return None
        if domains.unknown(gang, self._policy):
            return None
        kind = signature.of(gang)
        if self._memory.prospects.is_hopeless(kind) or self._depth.is_deep(gang, kind):
            return None
        grant = self._plan(gang, kind)
        if grant is not None:
            self._take(gang, grant, lasting=True)
        elif self._may_backfill(gang):
            plan = self._plan_now(gang, kind)
            if isinstance(plan, Grant):
                grant = plan
                self._take(gang, grant, lasting=False)
        return grant

    def _plan(self, gang: Gang, kind: object) -> Grant | None:
        if self._head is None:
            plan = self._plan_now(gang, kind)
            return plan if isinstance(plan, Grant) else None
        if kind in self._depth.behind or kind in self._failed:
            return None
        plan = self._search(gang, self._open)
        if isinstance(plan, Grant):
            return plan
        self._depth.behind.add(kind)
        self._depth.note_tried(gang, kind)
        return None

    def _plan_now(self, gang: Gang, kind: object) -> Grant | Shortfall:
        """Plan on all that is free, whoever it is kept for."""
        if kind in self._failed:
            return self._failed[kind]
        plan = self._search(gang, self._now)
        if isinstance(plan, Shortfall):
            self._failed[kind] = plan
            self._depth.note_tried(gang, kind)
        return plan

    def _search(self, gang: Gang, supply: Supply) -> Grant | Shortfall:
        penalty = self._scene.penalty(gang)
        return admit.plan(gang, supply, self._policy, penalty=penalty, tally=self._depth.tally(gang))

    def _may_backfill(self, gang: Gang) -> bool:
        """Return whether the gang says that it is over before the reservation starts, and is to be believed."""
        if self.reservation is None or self.reservation.starts_at is None or gang.namespace in self.state.banned:
            return False
        seconds = runtime_seconds(gang)
        if seconds is None:
            return False
        return self._scene.now + self._policy.queue.start_seconds + seconds <= self.reservation.starts_at

    def _take(self, gang: Gang, grant: Grant, *, lasting: bool) -> None:
        """Take a place off; `lasting`: the gang may hold it for ever."""
        units = gpus(gang, self._policy)
        self._leased[gang.namespace] = self._leased.get(gang.namespace, 0) + units
        self._now = self._now.less(gang, grant.placements)
        self._granted.append(
            Holding(
                gang=gang,
                placements=grant.placements,
                since=self._scene.now,
                started_at=None,
                runtime_seconds=runtime_seconds(gang),
            )
        )
        self._future = None
        if self._spare is None:
            self._open = self._now
            return
        if lasting:
            self._spare = self._spare.less(gang, grant.placements)
        self._open = self._now.least(self._spare)

    def _refusal(self, ask: Ask) -> Explanation:
        gang, position, policy = ask.gang, self._position, self._policy
        if level := domains.unknown(gang, policy):
            return explain.unknown_level(gang, level, position, policy)
        kind = signature.of(gang)
        is_deep = self._depth.is_deep(gang, kind)
        if (never := self._never(gang, kind, is_deep=is_deep)) is not None:
            return explain.never(gang, never, position)
        if ask.standing.not_before > self._scene.now:
            return explain.on_strike(gang, ask.standing, position)
        if (limit := self._over_limit(gang)) is not None:
            return explain.over_limit(gang, self._leased.get(gang.namespace, 0), limit, position)
        if is_deep:
            return explain.deep(gang, policy.queue.scan_depth, position)
        plan = self._plan_now(gang, kind)
        if isinstance(plan, Grant):
            assert self._head is not None
            return explain.behind(gang, self._head, position, self.reservation)
        if self._head is None and ask.standing.may_reserve and self._reserve(ask):
            return explain.head(gang, plan, position, policy, self.reservation)
        return explain.shortfall(gang, plan, position)

    def _reserve(self, ask: Ask) -> bool:
        """Keep a place for the gang from here on; False: there is none to keep."""
        gang, state, scene = ask.gang, self.state, self._scene
        if gang.full_name in state.resting:
            return False
        if self._future is None:
            held = (*scene.holdings, *self._granted)
            self._future = returns.future(self._now, held, self._policy, scene.now, self._memory.returns)
        future = self._future = self._future.of(self._now)
        before = state.reservation
        if before is not None and (before.gang, before.shape) != (gang.full_name, signature.of(gang)):
            before = None
        kept = shadow.reserve(gang, future, before, self._policy, scene.now, scene.now - ask.asked_at)
        if kept is None:
            return False
        self._head, self.reservation = gang, kept
        is_aged = _is_aged(ask, self._policy, scene.now)
        self._spare = shadow.spare(kept, gang, self._now, future, scene.ideal, self._policy, is_aged=is_aged)
        self._open = self._now.least(self._spare)
        return True

    def _never(self, gang: Gang, kind: object, *, is_deep: bool) -> Shortfall | None:
        """Return why the gang can never fit; one that is deep is not looked into."""
        prospects = self._memory.prospects
        if not prospects.is_known(kind):
            if is_deep:
                return None
            self._depth.note_tried(gang, kind)
        return prospects.never(gang, self._scene.ideal, self._policy, self._depth.tally(gang))

    def _over_limit(self, gang: Gang) -> int | None:
        """Return the namespace's limit if the gang would go over it."""
        limits = self._policy.queue.namespace_limits
        limit = limits.get(gang.namespace, limits.get("*"))
        units = gpus(gang, self._policy)
        if limit is None or not units or self._leased.get(gang.namespace, 0) + units <= limit:
            return None
        return limit


def gpus(gang: Gang, policy: Policy) -> int:
    """Return the whole GPUs that a gang asks for."""
    return sum(
        podset.count * podset.units_per_pod
        for podset in gang.podsets
        if isinstance(podset.request, GpuRequest) or getattr(podset.request, "name", "") == policy.gpu_resource
    )


def _is_aged(ask: Ask, policy: Policy, now: float) -> bool:
    return 0 < policy.queue.ageing_seconds <= now - ask.asked_at


def _renewed(state: QueueState, scene: Scene, policy: Policy) -> QueueState:
    """Let what is over be over: expired reservations, rests and bans; and note who runs longer than said."""
    now, kept = scene.now, state.reservation
    resting = {gang: until for gang, until in state.resting.items() if until > now}
    if kept is not None and kept.expires_at is not None and kept.expires_at <= now:
        resting[kept.gang] = now + (kept.expires_at - kept.nearer_at)
        kept = None
    banned = {namespace: until for namespace, until in state.banned.items() if until > now}
    for holding in scene.holdings:
        if now > holdings.overruns_at(holding, policy.queue):
            banned[holding.gang.namespace] = now + policy.queue.overrun_ban_seconds
    return QueueState(reservation=kept, resting=codec.freeze(resting), banned=codec.freeze(banned))


def _again_at(asks: Iterable[Ask], scene: Scene, policy: Policy, state: QueueState) -> float | None:
    """Return the next moment at which a rule of time says something else."""
    kept = state.reservation
    moments = [ask.standing.not_before for ask in asks]
    moments += [ask.asked_at + policy.queue.ageing_seconds for ask in asks if policy.queue.ageing_seconds]
    moments += [holdings.overruns_at(holding, policy.queue) for holding in scene.holdings]
    moments += [until for times in (state.resting, state.banned) for until in times.values()]
    if kept is not None:
        moments += [moment for moment in (kept.starts_at, kept.expires_at) if moment is not None]
    return min((moment for moment in moments if scene.now < moment < math.inf), default=None)
