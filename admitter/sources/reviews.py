"""Ask the API server who a token belongs to, and what somebody may do.

In: bearer tokens (TokenReview, audience `muster-admitter`), users and what they want (SubjectAccessReview). Out: a Caller, or
yes or no.

Invariants: a token for another audience, one that has expired or was never issued is nobody's. A node is believed only from
the agents' own service account: any pod may ask for a token of our audience, and would be taken for its node's agent. An
answer is remembered for `cache_seconds` at most, under a digest: no token is kept in memory. When there is no answer there
is no caller, and nobody may anything.

Why one question for many: after a restart of the admitter five thousand agents come back at once, and some of them twice.

Not here: which verb stands for which call (services/identity.py).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, TypeVar

import structlog
from lightkube.models import authentication_v1, authorization_v1
from lightkube.resources import authentication_v1 as authentication
from lightkube.resources import authorization_v1 as authorization

from admitter.model.caller import Caller, Nobody, Node, Unanswered, User
from admitter.sources import apiclient, watch
from admitter.sources.apiclient import Api
from muster.model import codec

_LOG = structlog.get_logger(__name__)

T = TypeVar("T")

AUDIENCE = "muster-admitter"
NODE_NAME = "authentication.kubernetes.io/node-name"
GROUP = "muster.dev"
"""API group of what RBAC rules for our callers name; no such API is served."""
AT_ONCE = 32
"""Questions in flight: the API server's own limit for one flow is near that."""
MAX_TOKEN = 16 * 1024
REFUSED_SECONDS = 5.0
"""How long a refusal is remembered: long enough for a loop, short enough for a grant to work soon."""
_MOST_REMEMBERED = 20_000


class Memory:
    """Answers of a bounded age, and questions that are on their way."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[Hashable, tuple[Any, float]] = {}
        self._asked: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        """Return the remembered answer, or ask; `ask` returns the answer and for how many seconds it may be used."""
        known = self._known.get(key)
        if known is not None and self._monotonic() < known[1]:
            answer: T = known[0]
            return answer
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.ensure_future(self._ask(key, ask))
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        # One caller that hangs up must not take the answer from the others.
        shared: T = await asyncio.shield(asked)
        return shared

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        answer, seconds = await ask()
        now = self._monotonic()
        if len(self._known) >= _MOST_REMEMBERED:
            self._known = {each: entry for each, entry in self._known.items() if now < entry[1]}
        if len(self._known) < _MOST_REMEMBERED and seconds > 0:
            self._known[key] = (answer, now + seconds)
        return answer


class Reviews:
    """Asks one API server. Belongs to one event loop."""

    def __init__(self, api: Api, monotonic: Callable[[], float], *, agent_account: str, cache_seconds: float) -> None:
        """`agent_account` is namespace/name of the agents' service account."""
        namespace, _, name = agent_account.partition("/")
        self._agent = f"system:serviceaccount:{namespace}:{name}"
        self._cache_seconds = cache_seconds
        self._client = api.client()
        self._memory = Memory(monotonic)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.asked = 0
        """Reviews that went to the API server."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def caller(self, token: str) -> Caller:
        """Return whom a token names."""
        if not token or len(token) > MAX_TOKEN:
            return Nobody(reason="no token, or one that is too long")
        digest = hashlib.sha256(token.encode()).digest()
        return await self._memory.get(digest, lambda: self._review(token))

    async def may(self, user: User, verb: str, resource: str, namespace: str) -> bool:
        """Return whether a user may do this, Unanswered if nobody says; an empty namespace stands for all of them."""
        groups, extra = tuple(sorted(user.groups)), tuple(sorted(user.extra.items()))
        key = (user.name, user.uid, groups, extra, verb, resource, namespace)
        return await self._memory.get(key, lambda: self._access(user, verb, resource, namespace))

    async def _review(self, token: str) -> tuple[Caller, float]:
        spec = authentication_v1.TokenReviewSpec(token=token, audiences=[AUDIENCE])
        try:
            reviewed: Any = await self._create(authentication.TokenReview(spec=spec))
        except apiclient.Failed as error:
            return Nobody(reason=self._problem("tokenreviews", "authentication.k8s.io", error), may_retry=True), 0
        status = reviewed.status or authentication_v1.TokenReviewStatus()
        if not status.authenticated or status.user is None or AUDIENCE not in (status.audiences or ()):
            return Nobody(
                reason=f"the token is not good for {AUDIENCE}: {status.error or 'refused'}"[:300]
            ), REFUSED_SECONDS
        caller = _caller(status.user, self._agent)
        return caller, REFUSED_SECONDS if isinstance(caller, Nobody) else self._cache_seconds

    async def _access(self, user: User, verb: str, resource: str, namespace: str) -> tuple[bool, float]:
        attributes = authorization_v1.ResourceAttributes(
            group=GROUP, resource=resource, verb=verb, namespace=namespace or None
        )
        spec = authorization_v1.SubjectAccessReviewSpec(
            user=user.name,
            uid=user.uid or None,
            groups=list(user.groups),
            extra={key: list(values) for key, values in user.extra.items()},
            resourceAttributes=attributes,
        )
        try:
            reviewed: Any = await self._create(authorization.SubjectAccessReview(spec=spec))
        except apiclient.Failed as error:
            raise Unanswered(self._problem("subjectaccessreviews", "authorization.k8s.io", error)) from error
        is_allowed = bool(reviewed.status is not None and reviewed.status.allowed)
        return is_allowed, min(self._cache_seconds, 30.0) if is_allowed else REFUSED_SECONDS

    async def _create(self, question: Any) -> Any:
        async with self._slots:
            self.asked += 1
            return await self._client.create(question)

    def _problem(self, plural: str, group: str, error: BaseException) -> str:
        problem = watch.describe("create", plural, group, error, apiclient.refusal(error))
        _LOG.warning("review failed", problem=problem)
        return problem


def _caller(user: authentication_v1.UserInfo, agent: str) -> Caller:
    name, extra = user.username or "", user.extra or {}
    if name != agent:
        return User(
            name=name,
            uid=user.uid or "",
            groups=tuple(user.groups or ()),
            extra=codec.freeze({key: tuple(values) for key, values in extra.items()}),
        )
    nodes = _texts(extra, NODE_NAME)
    if len(nodes) != 1:
        return Nobody(reason="the agent's token is bound to no node: it must be a projected token of its pod")
    return Node(name=nodes[0])


def _texts(extra: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = extra.get(key) or ()
    return tuple(value for value in values if isinstance(value, str) and value)
