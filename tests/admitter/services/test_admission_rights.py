"""A place before others in the queue is a right of its own."""

import grpc
import pytest

from admitter.services.admission import AdmissionService
from admitter.services.identity import Door
from muster.pb.muster.v1 import admission_pb2 as pb


class Ended(Exception):
    pass


class Asked(Exception):
    pass


class Context:
    """The call of a client with a certificate."""

    def auth_context(self):
        return {"x509_subject_alternative_name": [b"muster:client:me"]}

    async def abort(self, code, words):
        raise Ended(code, words)


class Reviews:
    """Who may what, of the namespace `team-a`."""

    def __init__(self, *verbs):
        self._verbs = verbs

    async def may(self, user, verb, resource, namespace):
        return verb in self._verbs and (resource, namespace) == ("gangs", "team-a")


class Desk:
    def open(self, gang, owner):
        raise Asked(gang.priority)


async def asks(priority, reviews):
    async def requests():
        podset = pb.Podset(count=1, gpus=1)
        yield pb.AdmitRequest(
            open=pb.OpenGang(namespace="team-a", gang="train", request_id="r1", priority=priority, podsets=[podset])
        )

    service = AdmissionService(Desk(), lambda: 0.0, Door(reviews))
    await service.Admit(requests(), Context())


MAY = {
    "no priority": (0, Reviews("create")),
    "less than none": (-5, Reviews("create")),
    "the right is there": (5, Reviews("create", "prioritize")),
    "there is no API server": (5, None),
}


@pytest.mark.parametrize(("priority", "reviews"), MAY.values(), ids=MAY)
async def test_who_may_is_asked_for_with_the_priority(priority, reviews):
    with pytest.raises(Asked) as asked:
        await asks(priority, reviews)
    assert asked.value.args == (priority,)


MAY_NOT = {
    "no right to go before others": (Reviews("create"), "me may not prioritize gangs.muster.dev in namespace team-a"),
    "no right to ask at all": (Reviews("prioritize"), "me may not create gangs.muster.dev in namespace team-a"),
}


@pytest.mark.parametrize(("reviews", "words"), MAY_NOT.values(), ids=MAY_NOT)
async def test_who_may_not_is_told_which_right_is_lacking(reviews, words):
    with pytest.raises(Ended) as ended:
        await asks(5, reviews)
    code, said = ended.value.args
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert said.endswith(words)
