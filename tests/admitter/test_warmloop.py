"""Who is told what to have ready, how often that is planned, and what is left when another admitter leads."""

import dataclasses

import pytest

from admitter import warmloop
from admitter.core.book import Book
from admitter.core.hints import Likely
from admitter.core.readiness import Readiness
from admitter.model.content import Answer, Content, Credential, ImagePolicy, PullSecret
from admitter.model.decision import Policy
from admitter.model.record import Terms
from admitter.sources.verify import Verifier
from tests.admitter.clusters import a_gang, a_view
from tests.admitter.core.test_starting import DIGEST, MIB, NAME, image, node_warmth, wanting, warmed

IMAGES = ImagePolicy(registries=frozenset({"r.example"}))
GANG = wanting(a_gang(count=8), Content(images=(NAME,), pull_secrets=("regcred",)))


class World:
    """A leader with one gang that waits, one node, and a namespace that shows its secret."""

    def __init__(self):
        self.now, self.leads, self.plans, self.wanted, self.sent = 1000.0, True, 0, [], {}
        self.warmth = node_warmth()
        self.read = frozenset({("team-a", "regcred")})
        policy = Policy(images=IMAGES)
        self.images = Readiness(IMAGES)
        terms = Terms(
            term=1,
            prefix="t1-x",
            opens_at=0.0,
            lease_grace_seconds=60.0,
            replan_patience_seconds=15.0,
            ended_kept_seconds=9.0,
        )
        self.book = Book(terms, policy, self.images)
        self.book.open(GANG, "client", self.now)
        self.loop = warmloop.WarmLoop(
            feed=self, book=lambda: self.book, images=self.images, guard=self, clock=self, policy=policy,
            verifier=Verifier((), self.monotonic), wake=lambda: None, secrets=self,
        )  # fmt: skip

    def monotonic(self):
        return self.now

    def may_write(self, term):
        return self.leads

    def view(self):
        return warmed(a_view(("n1", 8)), n1=self.warmth)

    def send_warm(self, node, wanted):
        self.sent[node] = wanted

    def want(self, wanted):
        self.wanted.append(dict(wanted))
        credential = Credential(username="u", password="p")
        return {("team-a", "r.example"): PullSecret(version="s/1", credential=credential)} if wanted else {}

    def answer(self):
        """The node answers whatever it is asked."""
        asked = self.sent["n1"].questions
        said = [Answer(id=each.id, digest=DIGEST, reason="", detail="", bytes_total=MIB) for each in asked]
        self.loop.hear("n1", tuple(said))


@pytest.fixture
def world(monkeypatch):
    world = World()
    likely = world.book.likely

    def counted(held):
        world.plans += 1
        return likely(held)

    monkeypatch.setattr(world.book, "likely", counted)
    return world


def test_answers_bring_one_plan_forward_and_then_plans_keep_their_distance(world):
    for _ in range(40):
        world.loop.look_once()
        world.images.ask("team-a", f"r.example/ml/x:v{world.now}", ["n1"], world.now)
        world.loop.look_once()
        world.answer()
        world.now += 0.1
    assert world.plans == 4.0 / warmloop.HINT_SECONDS + 1


def test_who_leads_no_more_keeps_no_secret(world):
    world.loop.look_once()
    world.images.ask("team-a", NAME, ["n1"], world.now)
    world.loop.look_once()
    assert world.sent["n1"].questions[0].credential is not None
    world.leads = False
    world.loop.look_once()
    assert world.wanted[-1] == {}
    assert not world.images.secrets
    assert not world.images.questions(world.now)


def test_the_secret_of_a_hinted_image_goes_to_the_node_that_lacks_it_once(world, monkeypatch):
    monkeypatch.setattr(world.book, "likely", lambda _: (Likely(gang=GANG, nodes=("n1",)),))
    world.loop.look_once()
    world.answer()
    world.now += warmloop.HINT_SECONDS
    world.loop.look_once()
    (hint,) = world.sent["n1"].images
    assert (hint.secret, hint.credential) == ("s/1", None)
    world.warmth = node_warmth(dataclasses.replace(image(), reference=hint.reference, reason="SecretMissing"))
    world.loop.look_once()
    assert world.sent["n1"].images[0].credential.password == "p"
    world.images.ask("team-a", "r.example/ml/other:v1", ["n1"], world.now)
    world.loop.look_once()
    assert world.sent["n1"].images == (hint,)
