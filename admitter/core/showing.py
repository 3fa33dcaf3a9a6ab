"""Which pull secrets go with a node's list of images.

In: the list, what was sent before, what the node says of its images, the secrets that waiting pods name. Out: the message,
if there is one to send, and what is remembered of it, which holds no secret.

Invariants: a question's secret is in the first list that asks it, and in no later one. An image's is in none before the
node has said `SecretMissing` of that very image, and then in one: a node that has the image, or credentials of its own, is
shown nothing. What was lost on the way is shown again once the node has gone on missing it for AGAIN_SECONDS.
"""

import dataclasses
from collections.abc import Mapping

from admitter.core import imagename
from admitter.core.readiness import Secrets
from admitter.model.content import Credential, Question, WarmImage, WarmList
from muster.model import codec
from muster.model.warmth import NodeWarmth

SECRET_MISSING = "SecretMissing"  # noqa: S105 -- a reason (agent/model/warm.py)
AGAIN_SECONDS = 30.0
"""A node says what it misses within seconds; its warmer or its stream may have ended meanwhile."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one node was told last."""

    wanted: WarmList | None = None
    """Without any secret."""
    shown: Mapping[str, float] = codec.mapping()
    """Reference and version of a secret -> when it was shown."""


NOTHING = Sent()


def show(
    wanted: WarmList, before: Sent, warmth: NodeWarmth, secrets: Secrets, now: float
) -> tuple[Sent, WarmList | None]:
    """Return what is remembered, and what to send; None: nothing."""
    plain = dataclasses.replace(wanted, questions=tuple(map(_plain, wanted.questions)))
    shown = {key: at for image in wanted.images if (at := before.shown.get(key := _key(image))) is not None}
    images = []
    for image in wanted.images:
        credential = None
        if image.secret and now - shown.get(_key(image), float("-inf")) >= AGAIN_SECONDS and _is_missing(image, warmth):
            credential = _credential(image, secrets)
        if credential is not None:
            shown[_key(image)] = now
        images.append(dataclasses.replace(image, credential=credential))
    after = Sent(wanted=plain, shown=codec.freeze(shown))
    if plain == before.wanted and shown == before.shown:
        return after, None
    asked = {each.id for each in before.wanted.questions} if before.wanted is not None else set()
    questions = tuple(_plain(each) if each.id in asked else each for each in wanted.questions)
    return after, dataclasses.replace(wanted, images=tuple(images), questions=questions)


def _plain(question: Question) -> Question:
    return dataclasses.replace(question, credential=None)


def _key(image: WarmImage) -> str:
    return f"{image.reference} {image.secret}"


def _is_missing(image: WarmImage, warmth: NodeWarmth) -> bool:
    return any(each.reference == image.reference and each.reason == SECRET_MISSING for each in warmth.images)


def _credential(image: WarmImage, secrets: Secrets) -> Credential | None:
    host = imagename.host(image.reference)
    return next(
        (each.credential for (_, its), each in secrets.items() if its == host and each.version == image.secret), None
    )
