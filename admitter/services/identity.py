"""Who calls, and may it: clients may ask, as far as the API server lets them; nodes may only feed.

The name is the certificate's SAN URI (muster/tls.py) or what the API server says of the token; nothing in a message can
change it. A node's is refused here, so that a stolen one can report its node and read nobody's gangs.

What a call needs, as RBAC rules name it (API group `muster.dev`, which nobody has to serve):

| call | verb and resource | where |
|---|---|---|
| Admit | `create` `gangs` | the gang's namespace |
| Admit with a priority above 0 | `prioritize` `gangs` as well | the gang's namespace |
| Why | `get` `gangs` | the gang's namespace |
| Status: its gangs | `list` `gangs` | each gang's namespace; the others are counted, not shown |
| Status: its nodes, WatchCapacity | `list`, `watch` `capacities` | the whole cluster |

Without an API server every client may everything, and there are no tokens.
"""

from typing import Any, NoReturn, Protocol, TypeAlias

import grpc

from admitter.model.caller import Caller, Nobody, Node, Unanswered, User
from muster import bearer, tls

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

CLIENTS = "muster:clients"
"""Group of every client that shows a certificate."""
GANGS, CAPACITIES = "gangs", "capacities"


class Reviews(Protocol):
    """Who knows tokens and rights."""

    async def caller(self, token: str) -> Caller: ...
    async def may(self, user: User, verb: str, resource: str, namespace: str) -> bool: ...


class Door:
    """Lets callers in, or ends their calls."""

    def __init__(self, reviews: Reviews | None = None) -> None:
        self._reviews = reviews

    async def client(self, context: Context) -> User:
        """Return who asks, or end the call."""
        peer = context.auth_context()
        if client := tls.peer_client(peer):
            return User(name=tls.CLIENT_PREFIX + client, groups=(CLIENTS,))
        if node := tls.peer_node(peer):
            await _refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"node {node} may only feed")
        token = bearer.token_of(context.invocation_metadata())
        if self._reviews is None or not token:
            await _refuse(
                context, grpc.StatusCode.UNAUTHENTICATED, "the certificate carries no muster:client: name, and no token"
            )
        match await self._reviews.caller(token):
            case User() as user:
                return user
            case Node(name=name):
                return await _refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"node {name} may only feed")
            case Nobody(reason=why, may_retry=may_retry):
                code = grpc.StatusCode.UNAVAILABLE if may_retry else grpc.StatusCode.UNAUTHENTICATED
                return await _refuse(context, code, why)

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Return whether a client may do this, as far as anybody can say; an empty namespace is the whole cluster."""
        try:
            return self._reviews is None or await self._reviews.may(user, verb, resource, namespace)
        except Unanswered:
            return False

    async def require(self, context: Context, user: User, verb: str, resource: str, namespace: str = "") -> None:
        """End the call of a client that may not do this."""
        try:
            is_allowed = self._reviews is None or await self._reviews.may(user, verb, resource, namespace)
        except Unanswered as silence:
            # No refusal: a client gives up on one, and comes back after this.
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, str(silence))
        if not is_allowed:
            where = f"namespace {namespace}" if namespace else "the whole cluster"
            words = f"{user.name} may not {verb} {resource}.muster.dev in {where}"
            await _refuse(context, grpc.StatusCode.PERMISSION_DENIED, words)


async def _refuse(context: Context, code: grpc.StatusCode, words: str) -> NoReturn:
    await context.abort(code, words)
    raise AssertionError("abort returned")
