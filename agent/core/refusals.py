"""Which pods the kubelet has refused in words that accuse the node, and until when that counts (faults.md B3, B4, E3).

Input: the refusals remembered, one snapshot. Output: the refusals to remember. The rules (rules/rejections.py) look at
them and at nothing that fades earlier: neither five minutes without a pod nor another admitter proves that a fault has ended.

Invariant: nothing latches. A refusal on which no rule has fired fades after 5 min. One on which a rule has fired ends with
what answers it: a restart of the plugin or a pod that got a device since; for the ledger (E3) a restart of the kubelet, or
more devices held than there can be while it leaks. Where no start could ever be read it ends after 30 min. A new boot ends all.

Why E3 is judged at the first sample that shows the refusal: later ones see what has been given back since, and a node that
was full would look like one that leaks. What looked free in the sample before counts too: the refusal is between the two.
"""

import collections
import dataclasses
import datetime
import re
from collections.abc import Iterable, Iterator

from agent.core.context import after, unheld
from agent.model.finding import Suspicion
from agent.model.history import History, Refusal
from agent.model.policy import Policy
from agent.model.snapshot import ResourceView, Snapshot
from muster.model import kube
from muster.model.reading import Known, Reading

MAX_REFUSALS = 64
"""Remembered at a time; those that prove something stay longest. A slice brings 64 at most (admitter)."""
_MAX_NAME = 320
"""Namespace and name of a pod, at most."""

_AVAILABLE = re.compile(r"for (?P<resource>[^\s,]+).*Requested: *(?P<requested>\d{1,9}).*Available: *(?P<left>\d{1,9})")
_PREFERRED = ("preferred allocation", "getpreferredallocation", "preferredallocation")
_ADMISSION = "UnexpectedAdmissionError"


def recent_of(snapshot: Snapshot, policy: Policy) -> tuple[kube.Rejection, ...]:
    """Return the admission errors of the last five minutes, oldest first."""
    wait = policy.wait("rejection-recent")
    found = (
        item
        for item in snapshot.observation.rejections
        if item.reason == _ADMISSION and datetime.timedelta() <= snapshot.now - item.at <= wait
    )
    return tuple(sorted(found, key=lambda item: (item.at, item.pod, item.uid)))


def names_preferred(message: str) -> bool:
    """True if the plugin failed while it chose devices."""
    text = message.lower()
    return any(word in text for word in _PREFERRED)


def follow(history: History, snapshot: Snapshot, policy: Policy) -> tuple[Refusal, ...]:
    """Return what is remembered once this sample is seen, oldest first."""
    known = {item.key: item for item in history.refusals}
    for rejection in recent_of(snapshot, policy):
        key = (rejection.uid or rejection.pod or str(rejection.at))[:_MAX_NAME]
        if key not in known and (fresh := _first_seen(key, rejection, history, snapshot)) is not None:
            known[key] = fresh
    # A clock that jumped back would leave it in the future, where no start could answer it.
    dated = (dataclasses.replace(item, at=min(item.at, snapshot.now)) for item in known.values())
    asked = [_asked(item, snapshot) for item in dated]
    kept = [item for item in asked if not _has_faded(item, snapshot, policy)]
    kept.sort(key=lambda item: (bool(item.proves) and not item.answered, item.at, item.key))
    return tuple(sorted(kept[-MAX_REFUSALS:], key=lambda item: (item.at, item.key)))


def standing(history: History) -> tuple[Refusal, ...]:
    """Return those that nothing has answered, oldest first."""
    return tuple(item for item in history.refusals if not item.answered)


def proven(refusals: Iterable[Refusal], suspicions: Iterable[Suspicion]) -> tuple[Refusal, ...]:
    """Mark the refusals on which a rule has fired for good: not while its hold-down may still end without it."""
    fired = {(item.rule.id, item.resource) for item in suspicions if item.until is None}
    of_plugin = next((rule for rule in ("B3", "B4") if any(rule == id_ for id_, _ in fired)), "")
    return tuple(dataclasses.replace(item, proves=item.proves or _proof(item, fired, of_plugin)) for item in refusals)


def _proof(item: Refusal, fired: set[tuple[str, str]], of_plugin: str) -> str:
    if not item.resource:
        return of_plugin
    return "E3" if item.most is not None and ("E3", item.resource) in fired else ""


def unheld_of(history: History, snapshot: Snapshot) -> dict[str, int]:
    """Return how many ids of each resource look free; what was seen last where that cannot be read."""
    return {
        view.name: len(unheld(view)) if _is_read(view) else history.unheld[view.name]
        for view in snapshot.resources
        if _is_read(view) or view.name in history.unheld
    }


def _is_read(view: ResourceView) -> bool:
    return isinstance(view.held, Known) and isinstance(view.advertised, Known)


def _first_seen(key: str, rejection: kube.Rejection, history: History, snapshot: Snapshot) -> Refusal | None:
    """Return what a refusal says at the first sample that shows it; None if it accuses nobody, or nobody can tell yet."""
    plain = Refusal(key=key, pod=(rejection.pod or rejection.uid or "a pod")[:_MAX_NAME], at=rejection.at)
    if names_preferred(rejection.message):
        return plain
    match = _AVAILABLE.search(rejection.message)
    view = snapshot.resource(match["resource"].rstrip(".")) if match else None
    if match is None or view is None or not _is_read(view):
        return None
    now_free = len(unheld(view))
    left, looked_free = int(match["left"]), min(now_free, history.unheld.get(view.name, now_free))
    most = len(view.holders()) + left if left < looked_free else None
    return dataclasses.replace(plain, resource=view.name, most=most)


def _asked(item: Refusal, snapshot: Snapshot) -> Refusal:
    return dataclasses.replace(
        item,
        answerable=item.answerable or bool(_starts(item, snapshot)),
        answered=item.answered or _is_answered(item, snapshot),
    )


def _is_answered(item: Refusal, snapshot: Snapshot) -> bool:
    boot = snapshot.observation.boot
    starts = _starts(item, snapshot) + ([boot.value.at] if isinstance(boot, Known) else [])
    if any(item.at < start <= snapshot.now for start in starts):
        return True
    if item.resource:
        return item.most is not None and _held(snapshot, item.resource) > item.most
    return any(item.at < made for made in _successes(snapshot))


def _has_faded(item: Refusal, snapshot: Snapshot, policy: Policy) -> bool:
    if not item.proves or item.answered:
        return snapshot.now > after(item.at, policy.wait("rejection-recent"))
    return not item.answerable and snapshot.now > after(item.at, policy.wait("rejection-unanswerable"))


def _starts(item: Refusal, snapshot: Snapshot) -> list[datetime.datetime]:
    """Return when what the refusal accuses has started, as far as anybody can say."""
    starts = [snapshot.kubelet_started_at] if item.resource else list(_plugin_starts(snapshot))
    return [start.value for start in starts if isinstance(start, Known)]


def _plugin_starts(snapshot: Snapshot) -> Iterator[Reading[datetime.datetime]]:
    """Yield when each plugin started: its process by the reader, its containers by the API server."""
    names = {plugin.pod for plugin in snapshot.plugins if plugin.pod}
    yield from (plugin.started_at for plugin in snapshot.plugins)
    match snapshot.pods:
        case Known(pods):
            for pod in pods:
                if pod.full_name in names:
                    running = (one for one in pod.containers if one.state is kube.ContainerState.RUNNING)
                    yield from (Known(one.since) for one in running if one.since is not None)
        case _:
            pass


def _held(snapshot: Snapshot, resource: str) -> int:
    view = snapshot.resource(resource)
    return len(view.holders()) if view is not None else 0


def _successes(snapshot: Snapshot) -> list[datetime.datetime]:
    """Return when the pods were made that hold a device now: each got it after that."""
    match snapshot.listed, snapshot.pods:
        case Known(listed), Known(pods):
            holding = collections.Counter(uid for item in listed if any(item.ids.values()) for uid in item.uids)
            return [pod.created_at for pod in pods if holding[pod.uid] and pod.created_at is not None]
        case _:
            return []
