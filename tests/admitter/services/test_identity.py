"""The door: a refusal is final for a client, silence of the API server is not."""

import grpc
import pytest

from admitter.model.caller import Nobody, Node, Unanswered, User
from admitter.services.identity import Door


class Ended(Exception):
    pass


class Context:
    """One call: what its peer shows, and how it was ended."""

    def __init__(self, peer=(), token=""):
        self._peer = {"x509_subject_alternative_name": [name.encode() for name in peer]}
        self._token = token

    def auth_context(self):
        return self._peer

    def invocation_metadata(self):
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    async def abort(self, code, words):
        raise Ended(code, words)


class Reviews:
    def __init__(self, caller=None, answer=None):
        self._caller, self._answer = caller, answer

    async def caller(self, token):
        return self._caller

    async def may(self, user, verb, resource, namespace):
        if self._answer is None:
            raise Unanswered("no answer")
        return self._answer


USER = User(name="u")
ENDS = {
    "nobody": (Context(), Reviews(), grpc.StatusCode.UNAUTHENTICATED),
    "a node's certificate": (Context(peer=("muster:node:a",)), None, grpc.StatusCode.PERMISSION_DENIED),
    "a node's token": (Context(token="t"), Reviews(Node(name="a")), grpc.StatusCode.PERMISSION_DENIED),
    "a bad token": (Context(token="t"), Reviews(Nobody(reason="bad")), grpc.StatusCode.UNAUTHENTICATED),
    "no answer": (Context(token="t"), Reviews(Nobody(reason="x", may_retry=True)), grpc.StatusCode.UNAVAILABLE),
    "a token and nobody to ask": (Context(token="t"), None, grpc.StatusCode.UNAUTHENTICATED),
}


@pytest.mark.parametrize(("context", "reviews", "code"), ENDS.values(), ids=ENDS)
async def test_who_is_no_client_is_turned_away(context, reviews, code):
    with pytest.raises(Ended) as ended:
        await Door(reviews).client(context)
    assert ended.value.args[0] is code


async def test_a_client_is_known_by_certificate_or_token():
    assert (await Door().client(Context(peer=("muster:client:me",)))).owner == "me"
    assert await Door(Reviews(USER)).client(Context(token="t")) == USER


async def test_silence_is_no_refusal_and_no_right():
    door = Door(Reviews())
    assert not await door.may(USER, "list", "gangs", "team")
    with pytest.raises(Ended) as ended:
        await door.require(Context(), USER, "create", "gangs", "team")
    assert ended.value.args[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_no_is_final_and_names_the_right():
    with pytest.raises(Ended) as ended:
        await Door(Reviews(answer=False)).require(Context(), USER, "create", "gangs", "team")
    assert ended.value.args == (
        grpc.StatusCode.PERMISSION_DENIED,
        "u may not create gangs.muster.dev in namespace team",
    )
    await Door(Reviews(answer=True)).require(Context(), USER, "create", "gangs", "team")
    await Door().require(Context(), USER, "create", "gangs", "team")
