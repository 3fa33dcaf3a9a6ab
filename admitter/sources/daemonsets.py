"""DaemonSets, as far as a taint could keep their pods off a node: listed when somebody asks, and by nobody else.

In: the API server. Out: `Daemon` values; None where the list could not be had, with the reason in the log and `problem`.

Why no watch: only a taint that is wanted or stands asks, which is rare and slow; a standing watch would cost every cluster.
"""

import lightkube
import structlog
from lightkube.models import core_v1
from lightkube.resources import apps_v1

from admitter.core.keepers import Daemon
from admitter.sources import apiclient, slimpod, watch
from admitter.sources.sharing import Shared

_LOG = structlog.get_logger(__name__)


class DaemonSets:
    """Belongs to one event loop."""

    def __init__(self, client: lightkube.AsyncClient) -> None:
        self._client = client
        self.problem = ""
        """Why the last list could not be had; empty: it could."""

    async def list_daemons(self) -> tuple[Daemon, ...] | None:
        """Return all DaemonSets; None: they could not be read."""
        shared = Shared()
        try:
            found = [item async for item in self._client.list(apps_v1.DaemonSet, namespace="*")]
        except apiclient.Failed as error:
            self._note(watch.describe("list", "daemonsets", "apps", error, apiclient.refusal(error)))
            return None
        self._note("")
        return tuple(daemon for item in found if (daemon := _daemon(item, shared)) is not None)

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                _LOG.warning("nobody is tainted: it is not known whom a taint would keep out", problem=problem)


def _daemon(item: apps_v1.DaemonSet, shared: Shared) -> Daemon | None:
    metadata = item.metadata
    spec = item.spec.template.spec if item.spec is not None else None
    if metadata is None or not metadata.name or not metadata.namespace or spec is None:
        return None
    return Daemon(
        namespace=metadata.namespace,
        name=metadata.name,
        constraints=slimpod.constraints(spec, shared),
        host_folders=_host_folders(spec),
    )


def _host_folders(spec: core_v1.PodSpec) -> tuple[str, ...]:
    return tuple(volume.hostPath.path for volume in spec.volumes or () if volume.hostPath is not None)
