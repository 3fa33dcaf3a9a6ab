"""What a gang with a place is not waited for, and which secret a question waits for."""

import dataclasses

import pytest

from admitter.core import imagename, readiness
from admitter.core.book import Book
from admitter.model.content import Answer, Content
from admitter.model.decision import Policy
from muster.model.vocabulary import WaitReason
from tests.admitter.clusters import a_view
from tests.admitter.core.test_readiness import (
    COLD,
    DIGEST,
    GANG,
    HOLDING,
    OPENER,
    POLICY,
    SECRET,
    VIEW,
    judge,
    looked,
    reply,
    terms,
)
from tests.admitter.core.test_starting import MIB, NAME, node_warmth, wanting, warmed

REFUSED = "the verification refused it"


def refusing(images):
    images.refused = {("n1", "team-a", NAME): REFUSED}
    return VIEW, REFUSED


def over_budget(images):
    reference = imagename.at(NAME, DIGEST)
    told = dataclasses.replace(COLD, reference=reference, reason="OverBudget", detail="9 bytes", is_wanted=True)
    return warmed(a_view(("n1", 8)), n1=node_warmth(told)), "OverBudget 9 bytes"


@pytest.mark.parametrize("end", [refusing, over_budget])
def test_a_hold_ends_at_once_for_what_will_not_get_warm_and_says_so(end):
    images = looked(policy=HOLDING)
    images.starts.learn("team-a", NAME, Answer(id=1, digest=DIGEST, reason="", detail="", bytes_total=600 * MIB))
    assert judge(images, 0.0) is not None
    view, why = end(images)
    assert judge(images, 1.0, view) is None
    assert images.waived == {"team-a/train": f"not waited for: {NAME} on n1: {why}"}


@pytest.mark.parametrize(("reason", "is_held"), [("Unauthorized", False), ("TooManyRequests", True)])
def test_an_image_that_cannot_be_resolved_is_not_waited_for(reason, is_held):
    images = looked(policy=dataclasses.replace(HOLDING, is_checked=True))
    judge(images, 0.0)
    reply(images, 1.0, reason=reason)
    assert (judge(images, 2.0) is not None) is is_held
    assert (reason in images.waived.get("team-a/train", "")) is not is_held


def test_what_will_not_get_warm_is_said_beside_what_is_waited_for():
    images = looked(policy=HOLDING)
    images.refused = {("n1", "team-a", NAME): REFUSED}
    why = judge(images, 0.0, gang=wanting(GANG, Content(images=(NAME, "r.example/ml/other:v1"))))
    assert f"not waited for: {NAME} on n1: {REFUSED}" in why.summary
    assert f"MiB of {NAME}" not in why.summary


def test_the_log_says_what_a_lease_did_not_wait_for():
    images = readiness.Readiness(HOLDING)
    book = Book(terms(), Policy(images=HOLDING), images)
    images.refused = {("n1", "team-a", NAME): REFUSED}
    book.open(GANG, "client", 0.0)
    book.decide(VIEW, 1.0)
    (leased,) = [event for event in book.events if event.kind == "leased"]
    assert REFUSED in leased.detail
    assert images.waived == {}


NAMING = wanting(GANG, Content(images=(NAME,), pull_secrets=("regcred",)))


def test_a_question_waits_for_the_secret_that_is_being_read_within_the_bound():
    images = looked()
    images.read = frozenset()
    assert judge(images, 0.0, gang=NAMING).reason is WaitReason.IMAGES_UNRESOLVED
    assert images.questions(0.0) == {}
    images.secrets, images.read = SECRET, frozenset({("team-a", "regcred")})
    assert judge(images, 1.0, gang=NAMING) is not None
    assert images.questions(1.0)["n1"][0].credential == OPENER


def test_a_secret_that_never_comes_is_waited_for_no_longer_than_the_bound():
    images = looked()
    images.read = frozenset()
    assert judge(images, 0.0, gang=NAMING) is not None
    judge(images, POLICY.check_seconds, gang=NAMING)
    assert images.questions(POLICY.check_seconds)["n1"][0].credential is None
    assert judge(images, 2 * POLICY.check_seconds, gang=NAMING) is None


def test_who_reads_no_secrets_waits_for_none():
    images = looked()
    judge(images, 0.0, gang=NAMING)
    assert images.questions(0.0)["n1"][0].credential is None


def test_what_was_refused_without_a_secret_is_asked_again_once_there_is_one():
    images = looked()
    judge(images, 0.0, gang=NAMING)
    reply(images, 1.0, reason="Unauthorized")
    judge(images, 2.0, gang=NAMING)
    assert images.questions(2.0) == {}
    images.secrets = SECRET
    judge(images, 3.0, gang=NAMING)
    assert images.questions(3.0)["n1"][0].credential == OPENER
    reply(images, 3.5, reason="Unauthorized")
    judge(images, 4.0, gang=NAMING)
    assert images.questions(4.0) == {}, "once"
