"""Pull secrets of pods that wait, for the images that nothing else opens.

In: which version of a secret may open each hint, and the credentials once they are told. Out: the credentials of an image.

Invariants: in memory only, in no repr. They are dropped when the image is warm, is hinted no more or with another
version, and after KEPT_SECONDS; whoever needs them again says `SecretMissing`, and is told again. They open that one
image: not its repository, and not another pod's question.
"""

from collections.abc import Callable, Iterable, Mapping

from agent.model.warm import Reference
from agent.warmer.registry import Credentials

KEPT_SECONDS = 3600.0
"""Longer than most pulls: one that goes on after a pause asks again."""


class PodSecrets:
    """Belongs to one event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._promised: dict[str, str] = {}
        self._kept: dict[str, tuple[Credentials, float]] = {}

    def promise(self, versions: Mapping[str, str]) -> set[str]:
        """Take the version for each reference, empty for none; return the references that have another one now."""
        before, self._promised = self._promised, {key: version for key, version in versions.items() if version}
        changed = {key for key in before.keys() | self._promised.keys() if before.get(key) != self._promised.get(key)}
        self.settle(self._promised.keys() - changed)
        return changed

    def keep(self, key: str, credentials: Credentials) -> bool:
        """Keep what opens a reference; return whether it is of use."""
        if key in self._promised:
            self._kept[key] = (credentials, self._monotonic())
        return key in self._promised

    def of(self, reference: Reference) -> Credentials | None:
        """Return what opens an image, as far as it is here."""
        kept = self._kept.get(str(reference))
        return kept[0] if kept is not None and self._monotonic() - kept[1] < KEPT_SECONDS else None

    def lacks(self, reference: Reference) -> bool:
        """Return whether there is a secret for an image that is not here."""
        return str(reference) in self._promised and self.of(reference) is None

    def settle(self, needed: Iterable[str]) -> None:
        """Drop all that these references do not need any more."""
        keys, now = frozenset(needed), self._monotonic()
        self._kept = {key: kept for key, kept in self._kept.items() if key in keys and now - kept[1] < KEPT_SECONDS}
