"""Ask once more, as a request about pods is sent, whether it is still wanted: it may have waited behind others.

In: what the request is for. Out: a question to be asked at the last moment, by its sender: of the pods as the watch has them, and
of those that a list brings.

Invariant: nothing is suspended of which a pod, member of the gang or not, has started or may start; nothing is let go under a
lease that has been given up. Who changes the owner between the question and the request makes the API server refuse it, by the
resourceVersion.

Not here: what is wanted (core/gates.py), the requests (podissuer.py, pods.py).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from admitter.core import deadlines, kin, strikes
from admitter.model.cluster import Cluster, KubePod, Owner
from admitter.model.group import Workloads
from admitter.model.hold import Replan
from admitter.model.record import GangRecord, GangState


class Fresh(Protocol):
    """Returns the owner's resourceVersion, or None where it is not to be suspended any more; by these pods, or by the watch's."""

    def __call__(self, pods: Iterable[KubePod] | None, /) -> str | None: ...


class Recheck:
    """Belongs to one event loop."""

    def __init__(
        self,
        record: Callable[[str], GangRecord | None],
        cluster: Cluster,
        workloads: Callable[[], Workloads],
        gate: str,
        is_busy: Callable[[str], bool],
    ) -> None:
        """`is_busy` says whether a request is on its way for a UID."""
        self._record, self._cluster, self._workloads = record, cluster, workloads
        self._gate, self._is_busy = gate, is_busy

    def lease(self, key: str, lease_id: str) -> Callable[[], bool]:
        """Return the question whether a gang still has the lease; without one there is nothing to lose."""

        def still() -> bool:
            record = self._record(key)
            return not lease_id or (record is not None and record.lease is not None and record.lease.id == lease_id)

        return still

    def replan(self, replan: Replan, namespace: str) -> Fresh:
        """Return the question whether what makes the pods may be suspended to have them made anew."""

        def fresh(pods: Iterable[KubePod] | None, /) -> str | None:
            owner = replan.owner
            if owner is None or strikes.ends_work(replan, self._kin(owner, namespace, pods)):
                return None
            return kin.version(owner, namespace, self._workloads())

        return fresh

    def pause(self, key: str, request_id: str, owner: Owner, namespace: str) -> Fresh:
        """Return the question whether a gang still waits, and all that the owner makes is held."""

        def fresh(listed: Iterable[KubePod] | None, /) -> str | None:
            record, pods = self._record(key), self._kin(owner, namespace, listed)
            waits = record is not None and record.state is GangState.WAITING and record.gang.request_id == request_id
            if not waits or not deadlines.is_held(pods, self._gate) or any(self._is_busy(pod.uid) for pod in pods):
                return None
            return kin.version(owner, namespace, self._workloads())

        return fresh

    def _kin(self, owner: Owner, namespace: str, listed: Iterable[KubePod] | None) -> tuple[KubePod, ...]:
        def mine() -> Iterator[KubePod]:
            pods = self._cluster.pods().values() if listed is None else listed
            return (pod for pod in pods if pod.namespace == namespace)

        return kin.Kin(mine, self._workloads()).of(owner, namespace)
