"""Keep what the admitter last said about this node: its Node, its Pods, and how old that is.

In: slices from the feed, and whether the stream they come on stands. Out: `View`, the API server's planes for one sample.

Invariant: a plane that was there once and is gone is Unknown, never absent (design.md section 3). The stream is what keeps
a slice fresh: while it stands the admitter sends every change, so an old slice is a quiet node; `grace_seconds` after it
broke, Node and Pods become Unknown(AdmitterGone). A slice that comes with an age says that the admitter itself does not hear
the API server: it ages from there, and after the same grace is Unknown(ApiServerGone).

Not here: which admitter to obey (publish/feed.py) and what the planes mean (core).
"""

import dataclasses

from muster.model import kube
from muster.model.reading import Unknown

_GONE = Unknown("AdmitterGone", "no stream to an admitter")
_UNHEARD = Unknown("ApiServerGone", "the admitter does not hear the API server")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The API server's planes at one moment."""

    content: kube.NodeSlice
    api_server: bool
    """False: the admitter has said that there is none."""
    read_at: float | None
    """When the admitter's word was current, by the monotonic clock; None: never."""


class SliceStore:
    """The newest slice and the state of its stream."""

    def __init__(self, *, grace_seconds: float, expect_api_server: bool) -> None:
        self._grace = grace_seconds
        self._api_server = expect_api_server
        self._content: kube.NodeSlice | None = None
        self._current_at: float | None = None
        self._is_live = False
        self._why = _GONE

    def offer(self, content: kube.NodeSlice, *, age_seconds: float, now: float) -> bool:
        """Keep a slice that was `age_seconds` old when sent; return whether anything in it is new."""
        changed = content != self._content
        self._content = content
        self._current_at = now - max(0.0, age_seconds)
        self._is_live = age_seconds <= 0
        self._why = _UNHEARD
        return changed

    def connected(self, *, api_server: bool) -> None:
        """Note the obeyed admitter's welcome. What an earlier one said goes on ageing until this one sends a slice."""
        self._api_server = api_server

    def disconnected(self, now: float) -> None:
        """Note that the stream to the obeyed admitter broke: from here on the slice ages."""
        self._why = _GONE
        if self._is_live:
            self._is_live = False
            self._current_at = now

    def read(self, now: float) -> View:
        """Return the planes as they stand at `now`."""
        if not self._api_server:
            return View(content=kube.NodeSlice(), api_server=False, read_at=None)
        if self._content is None or self._current_at is None:
            return View(content=kube.NodeSlice(node_object=_GONE, pods=_GONE), api_server=True, read_at=None)
        if self._is_live:
            return View(content=self._content, api_server=True, read_at=now)
        if now - self._current_at <= self._grace:
            return View(content=self._content, api_server=True, read_at=self._current_at)
        why = self._why
        gone = dataclasses.replace(self._content, node_object=why, pods=why, plugins=why, dra=why, desired_mig=why)
        return View(content=gone, api_server=True, read_at=self._current_at)
