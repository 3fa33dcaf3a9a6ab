"""A gang with a place is held for its images only for what a registry has said, or for a bounded time."""

import dataclasses

import pytest

from admitter.core import admit, offers, readiness
from admitter.core.book import Book
from admitter.model.content import Answer, Content, Credential, ImagePolicy, PullSecret
from admitter.model.decision import Grant, Policy
from admitter.model.record import GangState, Terms
from muster.model.vocabulary import WaitReason
from muster.model.warmth import Hold, Level
from tests.admitter.clusters import a_gang, a_view
from tests.admitter.core.test_starting import MIB, NAME, image, node_warmth, wanting, warmed

POLICY = ImagePolicy()
HOLDING = ImagePolicy(is_checked=False, hold_seconds=120.0, registries=frozenset({"r.example"}))
GANG = wanting(a_gang(count=8))
COLD = image(Level.PARTIAL, bytes_missing=512 * MIB, layers_missing=6)
VIEW = warmed(a_view(("n1", 8)), n1=node_warmth(COLD))
WARM = warmed(a_view(("n1", 8)), n1=node_warmth(image()))
DIGEST = "sha256:" + 64 * "d"


def place(gang, view):
    grant = admit.plan(gang, offers.of_view(view, {}, Policy()), Policy())
    assert isinstance(grant, Grant)
    return grant


def looked(view=VIEW, policy=POLICY):
    images = readiness.Readiness(policy)
    images.look(view)
    return images


def judge(images, now, view=VIEW, gang=GANG):
    images.look(view)
    return images.judge(gang, place(gang, view), now)


def reply(images, now, node="n1", **fields):
    (question,) = images.questions(now)[node]
    fields = {"digest": "", "reason": "", "detail": "", "bytes_total": 0, **fields}
    return images.answered(node, [Answer(id=question.id, **fields)], now)


def test_a_gang_without_images_and_a_place_without_a_warmer_are_let_go_at_once():
    assert judge(looked(), 0.0, gang=a_gang(count=8)) is None
    bare = a_view(("n1", 8))
    assert judge(looked(bare), 0.0, bare) is None


def test_an_image_is_asked_about_once_and_then_believed_for_a_while():
    images, news = looked(), []
    images.note = lambda: news.append(1)
    why = judge(images, 0.0)
    assert why.reason is WaitReason.IMAGES_UNRESOLVED
    assert NAME in why.summary
    assert judge(images, 1.0) is not None
    assert len(news) == 1
    assert reply(images, 2.0, digest=DIGEST)
    assert images.questions(2.0) == {}
    assert judge(images, 3.0) is None
    assert judge(images, 2.0 + POLICY.fresh_seconds) is None
    assert judge(images, 2.5 + POLICY.fresh_seconds).reason is WaitReason.IMAGES_UNRESOLVED


def test_nobody_waits_longer_for_an_answer_than_the_bound():
    images = looked()
    assert judge(images, 0.0) is not None
    assert judge(images, POLICY.check_seconds) is None


OPENER = Credential(username="u", password="p")
SECRET = {("team-a", "r.example"): PullSecret(version="s/1", credential=OPENER)}
SAID = {
    "404": ("NotFound", {}, True),
    "401 without the pod's secret": ("Unauthorized", {}, False),
    "401 although the pod's secret was shown": ("Unauthorized", SECRET, True),
    "429": ("TooManyRequests", {}, False),
    "a host that is left alone": ("HostHeld", {}, False),
    "a registry that is away": ("RegistryUnreachable", {}, False),
    "a warmer that is away": ("WarmerUnavailable", {}, False),
}


@pytest.mark.parametrize("case", SAID)
def test_what_holds(case):
    reason, secrets, holds = SAID[case]
    images = looked()
    images.secrets = secrets
    judge(images, 0.0)
    reply(images, 1.0, reason=reason, detail="said the registry")
    why = judge(images, 2.0)
    assert (why is not None) is holds
    if holds:
        assert why.reason is WaitReason.IMAGE_UNAVAILABLE
        assert f"{NAME}: {reason} said the registry" in why.summary


def test_a_404_holds_until_the_registry_says_otherwise():
    images = looked()
    judge(images, 0.0)
    reply(images, 1.0, reason="NotFound")
    late = 5 * POLICY.fresh_seconds
    assert judge(images, late).reason is WaitReason.IMAGE_UNAVAILABLE, "the registry is asked again meanwhile"
    reply(images, late + 1, digest=DIGEST)
    assert judge(images, late + 2) is None


def test_one_namespace_is_not_answered_by_what_another_ones_secret_opened():
    images = looked()
    other = dataclasses.replace(GANG, namespace="team-b")
    judge(images, 0.0)
    reply(images, 1.0, digest=DIGEST)
    assert judge(images, 2.0) is None
    assert judge(images, 2.0, gang=other).reason is WaitReason.IMAGES_UNRESOLVED


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": "latest"},
        {"digest": DIGEST, "bytes_total": -1},
        {"reason": "NotFound", "detail": "x" * (readiness.MAX_TEXT + 1)},
    ],
)
def test_an_answer_that_no_warmer_gives_is_none(fields):
    images = looked()
    judge(images, 0.0)
    assert not reply(images, 1.0, **fields)
    assert judge(images, POLICY.check_seconds) is None


def test_an_answer_that_nobody_asked_for_is_none():
    images = looked()
    judge(images, 0.0)
    (question,) = images.questions(0.0)["n1"]
    answer = Answer(id=question.id, digest="", reason="NotFound", detail="", bytes_total=0)
    assert not images.answered("n2", [answer], 1.0), "another node was asked"
    assert not images.answered("n1", [dataclasses.replace(answer, id=question.id + 1)], 1.0)


def test_a_cold_place_is_held_for_a_bounded_time_and_the_line_names_image_and_bytes():
    images = looked(policy=HOLDING)
    why = judge(images, 0.0)
    assert why.reason is WaitReason.IMAGES_COLD
    assert f"n1 misses 600 MiB of {NAME}" in why.summary
    assert why.changes_at == 120.0
    assert images.held["team-a/train"][1] == ("n1",)
    assert judge(images, 119.0) is not None
    assert judge(images, 120.0) is None
    assert not images.held


def test_a_launcher_that_asks_anew_is_not_held_anew():
    images, again = looked(policy=HOLDING), dataclasses.replace(GANG, request_id="r2")
    assert judge(images, 0.0) is not None
    images.forget([])
    assert judge(images, 119.0, gang=again).changes_at == 120.0
    assert judge(images, 120.0, gang=again) is None
    images.forget([])
    assert judge(images, 5000.0, gang=again) is not None, "that was another time"


def test_a_place_that_gets_warm_is_let_go():
    images = looked(policy=HOLDING)
    assert judge(images, 0.0) is not None
    assert judge(images, 5.0, WARM) is None


@pytest.mark.parametrize(
    "policy", [dataclasses.replace(HOLDING, registries=frozenset()), dataclasses.replace(HOLDING, hold_seconds=0.0)]
)
def test_nobody_is_held_for_what_nobody_warms(policy):
    assert judge(looked(policy=policy), 0.0) is None


@pytest.mark.parametrize(
    ("handler", "held"), [("", True), ("kata", False), ("not-there", False), (None, False)], ids=str
)
def test_nobody_is_held_for_a_snapshotter_that_is_not_warmed(handler, held):
    """No warmer would ever end such a hold."""
    view = warmed(a_view(("n1", 8)), n1=node_warmth(COLD, handlers={"": "overlayfs", "kata": "stargz"}))
    gang = wanting(GANG, Content(images=(NAME,), handler=handler))
    assert (judge(looked(view, HOLDING), 0.0, view, gang) is not None) is held


def terms():
    return Terms(
        term=1,
        prefix="t1-x",
        opens_at=0.0,
        lease_grace_seconds=60.0,
        replan_patience_seconds=15.0,
        ended_kept_seconds=600.0,
    )


def test_the_book_leases_nothing_while_images_hold_and_all_of_it_after():
    images = readiness.Readiness(ImagePolicy())
    book = Book(terms(), Policy(), images)
    book.open(GANG, "client", 0.0)
    book.decide(VIEW, 1.0)
    record = book.records["team-a/train"]
    assert (record.state, record.why.reason) == (GangState.WAITING, WaitReason.IMAGES_UNRESOLVED)
    reply(images, 1.5, reason="NotFound")
    book.decide(VIEW, 2.0)
    assert book.records["team-a/train"].why.reason is WaitReason.IMAGE_UNAVAILABLE
    assert not book.leases()
    book.decide(VIEW, 3.0 + POLICY.fresh_seconds)
    reply(images, 4.0 + POLICY.fresh_seconds, digest=DIGEST)
    book.decide(VIEW, 5.0 + POLICY.fresh_seconds)
    assert book.records["team-a/train"].state is GangState.LEASED


def test_a_held_gang_holds_up_nobody_who_fits_beside_it():
    images = readiness.Readiness(ImagePolicy())
    book = Book(terms(), Policy(), images)
    view = warmed(a_view(("n1", 8), ("n2", 8)), n1=node_warmth(COLD), n2=node_warmth(COLD))
    book.open(GANG, "client", 0.0)
    book.open(a_gang(count=8, name="other"), "client", 0.0)
    book.decide(view, 1.0)
    assert book.records["team-a/train"].state is GangState.WAITING
    assert book.records["team-a/other"].state is GangState.LEASED


def test_contents_are_no_part_of_what_a_gang_is():
    assert wanting(a_gang(count=1), Content(images=("a:1",))) == wanting(a_gang(count=1), Content(images=("b:1",)))


def test_a_gang_whose_image_is_not_there_keeps_no_place_from_others():
    images = readiness.Readiness(ImagePolicy())
    book = Book(terms(), Policy(), images)
    book.open(GANG, "client", 0.0)
    book.open(dataclasses.replace(a_gang(count=8, name="other"), namespace="team-b"), "client", 0.0)
    book.decide(VIEW, 1.0)
    reply(images, 1.5, reason="NotFound")
    book.decide(VIEW, 2.0)
    assert book.records["team-a/train"].why.reason is WaitReason.IMAGE_UNAVAILABLE
    book.decide(VIEW, 2.1)
    assert book.records["team-b/other"].state is GangState.LEASED
    assert book.records["team-a/train"].why.reason is WaitReason.IMAGE_UNAVAILABLE
    book.end("team-b/other", "done", 3.0)
    book.decide(VIEW, 3.0 + POLICY.fresh_seconds)
    reply(images, 4.0 + POLICY.fresh_seconds, digest=DIGEST)
    book.decide(VIEW, 5.0 + POLICY.fresh_seconds)
    assert book.records["team-a/train"].state is GangState.LEASED, "it has its turn with the next answer"


def test_a_gang_that_is_withdrawn_for_its_image_keeps_no_turn_either():
    images = readiness.Readiness(ImagePolicy())
    book = Book(terms(), Policy(), images)
    book.open(GANG, "client", 0.0)
    book.decide(VIEW, 1.0)
    reply(images, 1.5, reason="NotFound")
    book.decide(VIEW, 2.0)
    book.end("team-a/train", "again", 2.5, has_run=False)
    book.open(a_gang(count=8, name="other"), "client", 2.6)
    book.decide(VIEW, 2.7)
    assert book.records["team-a/other"].state is GangState.LEASED


def test_a_404_does_not_hold_a_gang_whose_own_secret_was_not_shown():
    images, gang = looked(), wanting(GANG, Content(images=(NAME,), pull_secrets=("regcred",)))
    judge(images, 0.0, gang=gang)
    reply(images, 1.0, reason="NotFound")
    assert judge(images, 2.0, gang=gang) is None
    images.secrets = SECRET
    late = 3.0 + POLICY.fresh_seconds
    judge(images, late, gang=gang)
    reply(images, late, reason="NotFound")
    assert judge(images, late + 1, gang=gang).reason is WaitReason.IMAGE_UNAVAILABLE


@pytest.mark.parametrize(("hold", "holds"), [(Hold.VISIBLE, False), (Hold.SHADOW, True)])
def test_a_404_does_not_hold_a_gang_whose_node_has_the_image(hold, holds):
    view = warmed(a_view(("n1", 8)), n1=node_warmth(image(hold=hold)))
    images = looked(view)
    judge(images, 0.0, view)
    reply(images, 1.0, reason="NotFound")
    assert (judge(images, 2.0, view) is not None) is holds


def test_an_image_that_is_never_pulled_is_no_registrys_business():
    images, gang = looked(), wanting(GANG, Content(images=(NAME,), unpulled=(NAME,)))
    judge(images, 0.0, gang=gang)
    reply(images, 1.0, reason="NotFound")
    assert judge(images, 2.0, gang=gang) is None
