"""A pull secret is told to a node once, and only if the node needs it."""

import dataclasses
import json

import pytest

from admitter.core import showing
from admitter.model.content import Credential, PullSecret, Question, WarmImage, WarmList
from muster.model import jsonform
from tests.admitter.core.test_starting import DIGEST, image, node_warmth

REFERENCE = f"r.example/ml/cuda@{DIGEST}"
OPENER = Credential(username="u", password="s3cret")
SECRETS = {("team-a", "r.example"): PullSecret(version="s/1", credential=OPENER)}
HINT = WarmImage(reference=REFERENCE, secret="s/1")
ASKED = Question(id=1, reference="r.example/ml/cuda:v1", credential=OPENER)


def lacking(reason=showing.SECRET_MISSING, reference=REFERENCE):
    return node_warmth(dataclasses.replace(image(), reference=reference, reason=reason))


class Node:
    """Told one list after the other."""

    def __init__(self):
        self.sent, self.now = showing.NOTHING, 1000.0

    def tell(self, *images, questions=(), warmth=None, secrets=None):
        wanted = WarmList(term=1, images=images, questions=questions)
        self.sent, message = showing.show(
            wanted, self.sent, warmth or node_warmth(), SECRETS if secrets is None else secrets, self.now
        )
        assert OPENER.password not in repr(self.sent)
        assert not any(question.credential for question in self.sent.wanted.questions)
        return message


def shown(message):
    return [each.credential for each in (*message.images, *message.questions)]


def test_a_question_shows_its_secret_in_its_first_list_alone():
    node = Node()
    assert shown(node.tell(questions=(ASKED,))) == [OPENER]
    assert node.tell(questions=(ASKED,)) is None
    other = dataclasses.replace(ASKED, id=2)
    assert shown(node.tell(questions=(ASKED, other))) == [None, OPENER]
    assert shown(node.tell(HINT, questions=(ASKED,))) == [None, None]
    node.sent = showing.NOTHING
    assert shown(node.tell(questions=(ASKED,))) == [OPENER], "another stream"


def test_a_hint_shows_its_secret_once_the_node_has_said_that_it_needs_it():
    node = Node()
    assert shown(node.tell(HINT)) == [None]
    assert shown(node.tell(HINT, warmth=lacking())) == [OPENER]
    for _ in range(29):
        node.now += 1
        assert node.tell(HINT, warmth=lacking()) is None
    node.now += 1
    assert shown(node.tell(HINT, warmth=lacking())) == [OPENER], "it was lost on the way"
    newer = {("team-a", "r.example"): PullSecret(version="s/2", credential=OPENER)}
    hint = dataclasses.replace(HINT, secret="s/2")
    assert shown(node.tell(hint, warmth=lacking(), secrets=newer)) == [OPENER], "another secret"


@pytest.mark.parametrize(
    ("hint", "warmth", "secrets"),
    [
        (HINT, lacking(reason="Unauthorized"), SECRETS),
        (HINT, lacking(reference="r.example/ml/other:v1"), SECRETS),
        (dataclasses.replace(HINT, secret=""), lacking(), SECRETS),
        (HINT, lacking(), {}),
        (dataclasses.replace(HINT, secret="s/0"), lacking(), SECRETS),
        (
            WarmImage(reference=f"b.example/x@{DIGEST}", secret="s/1"),
            lacking(reference=f"b.example/x@{DIGEST}"),
            SECRETS,
        ),
    ],
    ids=["other reason", "other image", "no secret", "not readable now", "old version", "other registry"],
)
def test_who_is_shown_nothing(hint, warmth, secrets):
    assert shown(Node().tell(hint, warmth=warmth, secrets=secrets)) == [None]


def test_no_form_but_the_wire_shows_a_secret():
    message = Node().tell(HINT, questions=(ASKED,), warmth=lacking())
    assert shown(message) == [OPENER, OPENER]
    assert OPENER.password not in repr(message)
    assert OPENER.password not in json.dumps(jsonform.to_json(message))
