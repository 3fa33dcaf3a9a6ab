"""What a lazily mounted layer says of itself: how much of it is here, and whether it can be read.

In: the text of a stargz state file. Out: Share, or why nothing is known.

Invariants: bytes are counted, `fetchedPercent` is not believed: it stays 100 after the cache is gone (images.md section
7). A file can be read half written, which is no statement at all; one that says `error` is a layer that is not warm.
"""

import dataclasses
import json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One layer."""

    digest: str
    size: int
    fetched: int
    error: str = ""

    @property
    def fraction(self) -> float:
        return min(1.0, self.fetched / self.size)


def parse(text: str) -> Share | None:
    """Return what a state file says; None: it says nothing, ask again.

    >>> parse('{"digest": "sha256:aa", "size": 8, "fetchedSize": 2, "fetchedPercent": 100}').fraction
    0.25
    """
    try:
        said = json.loads(text)
        share = Share(
            digest=str(said["digest"]),
            size=int(said["size"]),
            fetched=max(0, int(said["fetchedSize"])),
            error=str(said.get("error") or "")[:200],
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return share if share.size > 0 else None


def folders(mounts: tuple[tuple[str, str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    """Return the folders of an image's layers, highest first, from the mounts of a view: (type, source, options).

    >>> folders((("overlay", "overlay", ("ro", "lowerdir=/b:/a")),))
    ('/b', '/a')
    """
    if len(mounts) != 1:
        return ()
    kind, source, options = mounts[0]
    if kind == "bind":
        return (source,)
    lower = [option.removeprefix("lowerdir=") for option in options if option.startswith("lowerdir=")]
    return tuple(lower[0].split(":")) if kind == "overlay" and lower else ()
