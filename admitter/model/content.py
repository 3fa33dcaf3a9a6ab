"""What pods start from: their images, the runtime handler they run under, the pull secrets they may show.

Values only. A podset carries its Content beside what its place is judged by: it can make one place better than another,
never a place possible or not (design.md section 11).
"""

import dataclasses

from muster.model import codec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    images: tuple[str, ...] = ()
    """As the pods name them, sorted."""
    handler: str | None = ""
    """Of the RuntimeClass; empty: the node's default; None: the pods name a class that nobody has."""
    pull_secrets: tuple[str, ...] = ()
    """Names, in the gang's namespace."""
    unpulled: tuple[str, ...] = ()
    """Of the images those that no container has pulled: `imagePullPolicy: Never`."""


NOTHING = Content()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    prefix: int
    """First 8 bytes of its chain id, as in NodeWarmth.layers."""
    bytes: int
    """Compressed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a node's warmer says that an image is."""

    id: int
    digest: str
    """Of manifest or index; empty: `reason` says why."""
    reason: str
    """A Reason of the warmer's; WarmerUnavailable if it does not answer."""
    detail: str
    bytes_total: int
    layers: tuple[Layer, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Whatever one node has to say at once."""

    answers: tuple[Answer, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Of a pull secret, for one registry."""

    username: str
    password: str = codec.secret()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullSecret:
    version: str
    """Another one whenever the secret is written."""
    credential: Credential


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WarmImage:
    """An image that a node is to have ready."""

    reference: str
    """With digest."""
    platform: str = ""
    secret: str = ""
    """Version of the pull secret that may open it; empty: there is none."""
    credential: Credential | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Ask a node's warmer what a reference is now."""

    id: int
    reference: str
    credential: Credential | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WarmList:
    """All that a node is told of images."""

    term: int
    images: tuple[WarmImage, ...] = ()
    questions: tuple[Question, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImagePolicy:
    """The settings of everything about images."""

    preference_units: int = 8
    """Most units of a domain that a warm start outweighs; 0: warmth decides nothing."""
    preference_seconds: float = 300.0
    """The start delay at which all of them count: a cold image takes 4 to 5 minutes (traces.md section 5)."""
    hold_seconds: float = 0.0
    """How long a gang that has a place may wait for its images to be warm there; 0: not at all."""
    is_checked: bool = True
    """Images are resolved before the release, where a node of the place has a warmer."""
    check_seconds: float = 5.0
    """How long a release waits for an answer."""
    fresh_seconds: float = 60.0
    """How long an answer is believed."""
    registries: frozenset[str] = frozenset()
    """Of which images are hinted; none: hints are off."""
    hinted_gangs: int = 20
    """Most gangs from the head of the queue whose images are hinted."""
    herd: int = 20
    """Most nodes that are to pull hinted images at once, in all the cluster."""
    spares: int = 1
    """Nodes beside the likely ones."""
    namespace_bytes: int = 200 * 1024**3
    """Most bytes that a namespace's hints make nodes hold, all of them together."""
    namespace_bytes_per_hour: int = 500 * 1024**3


DEFAULT = ImagePolicy()
