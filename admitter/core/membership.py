"""Which pods have a place under which gang's name, as pods and what is above them change.

Input: UIDs about which something may be different. Output: the names whose pods have changed.

Invariant: a pod has one place at a time; a name is known while a pod has it, or until it is dropped.
"""

import functools
from collections.abc import Callable, Iterable, Mapping

from admitter.core import groups
from admitter.model.cluster import KubePod
from admitter.model.group import Workloads


class Membership:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = {}
        """Key -> UIDs of all pods that have that place."""
        self._places: dict[str, groups.Place] = {}
        """By UID."""
        self._uids: dict[str, set[str]] = {}
        """By namespace, of all pods."""
        self._stirred: set[str] = set()
        """Namespaces above whose pods something has changed since the last look; empty: perhaps everywhere."""
        self._settling: set[str] = set()
        """The same, since it was time."""
        self._fresh: set[str] = set()
        """UIDs whose place has to be made out anew."""

    def touch(self, uids: Iterable[str]) -> None:
        """Have these pods looked at anew."""
        self._fresh.update(uids)

    def note(self, pod: KubePod, *, is_gone: bool) -> None:
        """Take a change of one pod: it is looked at anew."""
        self._fresh.add(pod.uid)
        mine = self._uids.setdefault(pod.namespace, set())
        if is_gone:
            mine.discard(pod.uid)
        else:
            mine.add(pod.uid)
        if not mine:
            del self._uids[pod.namespace]

    def stir(self, namespace: str) -> None:
        """Something above the pods of a namespace has changed; empty: perhaps everywhere."""
        self._stirred.add(namespace)

    def touch_stirred(self, pods: Mapping[str, KubePod], concerns: Callable[[KubePod], bool], *, is_time: bool) -> None:
        """Have pods looked at anew above which something has changed: those without a place at once, the others when it `is_time`.

        Every event of every Job stirs its namespace, whatever its pods ask for; a pod that waits for its Job to be known is not
        to wait long.
        """
        stirred, self._stirred = self._stirred, set()
        self._settling |= stirred
        if is_time:
            stirred, self._settling = self._settling, set()
        found: Iterable[KubePod] = pods.values()
        if "" not in stirred:
            uids = (uid for namespace in stirred for uid in self._uids.get(namespace, ()))
            found = (pods[uid] for uid in uids if uid in pods)
        self._fresh.update(pod.uid for pod in found if concerns(pod) and (is_time or not self.has(pod.uid)))

    @property
    def is_settled(self) -> bool:
        """True if no pod has to be looked at."""
        return not self._fresh

    def has(self, uid: str) -> bool:
        """Return whether a pod has a place."""
        return uid in self._places

    def gang_of(self, uid: str) -> str:
        """Return the name of the gang that a pod belongs to; empty: none that is followed here."""
        place = self._places.get(uid)
        return place.name if place is not None else ""

    def of(self, key: str) -> frozenset[str]:
        """Return the UIDs of a name."""
        return frozenset(self._members.get(key, ()))

    def settle(
        self,
        find: Callable[[str], KubePod | None],
        workloads: Workloads,
        attempt: Callable[[str, Callable[[], None]], object] = lambda _, settle: settle(),
    ) -> set[str]:
        """Make out the places of the pods that were touched; return the names that have changed.

        `attempt` does the work of one pod: what it raises is the caller's to confine.
        """
        changed: set[str] = set()
        fresh, self._fresh = self._fresh, set()

        def settle(uid: str) -> None:
            pod = find(uid)
            place = groups.place(pod, workloads) if pod is not None else None
            before = self._places.get(uid)
            if before is not None and (place is None or place.key != before.key):
                self._members[before.key].discard(uid)
                changed.add(before.key)
                del self._places[uid]
            if place is not None:
                self._places[uid] = place
                self._members.setdefault(place.key, set()).add(uid)
                changed.add(place.key)

        for uid in fresh:
            attempt(uid, functools.partial(settle, uid))
        return changed

    def drop(self, key: str) -> None:
        """Forget a name that no pod has."""
        if not self._members.get(key):
            self._members.pop(key, None)
