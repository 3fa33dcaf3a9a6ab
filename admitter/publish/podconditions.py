"""Conditions of ours on pods, by server-side apply: one request each; nothing is decided here.

In: a pod as it was last seen, a condition, the term it was decided in. Out: what became of the request; none raises.

Invariants: a request leaves only while the guard still allows its term. Each condition has a field manager of its own, and
nothing else is in the request: kubelet's and everybody's conditions stay as they are. A condition's time moves only with its
status. It carries the pod's UID, so that a pod made anew under the name is left alone.
"""

import datetime
from collections.abc import Callable
from typing import Any

import lightkube
from lightkube.resources import core_v1 as core
from lightkube.types import PatchType

from admitter.model.cluster import KubePod
from admitter.publish.nodes import Failed, Outcome, failure
from muster.model import labels

FIELD_MANAGER = "muster-pods"
"""Begins the name of each condition's field manager."""


class PodConditionWriter:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: lightkube.AsyncClient,
        may_write: Callable[[int], bool],
        utc: Callable[[], datetime.datetime],
    ) -> None:
        """`may_write` is the guard's."""
        self._client, self._may_write, self._utc = client, may_write, utc

    async def set(
        self, pod: KubePod, key: labels.Key, status: str, reason: str, message: str, term: int
    ) -> tuple[Outcome, str]:
        """Apply one condition."""
        if not self._may_write(term):
            return Outcome.NOT_LEADING, ""
        try:
            await self._client.patch(
                core.PodStatus,
                pod.name,
                applied(pod, key, status, reason, message, self._utc()),
                namespace=pod.namespace,
                patch_type=PatchType.APPLY,
                field_manager=f"{FIELD_MANAGER}-{key.name.lower()}",
                force=True,
            )
        except Failed as error:
            sent = failure(error)
            return sent.outcome, sent.detail
        return Outcome.DONE, ""


def applied(
    pod: KubePod, key: labels.Key, status: str, reason: str, message: str, now: datetime.datetime
) -> dict[str, Any]:
    """Return the object of a server-side apply: this condition and nothing else."""
    before = next((each for each in pod.conditions if each.type == key.full), None)
    since = before.since if before is not None and before.status == status and before.since is not None else now
    condition = {
        "type": key.full,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "status": {"conditions": [condition]},
    }
