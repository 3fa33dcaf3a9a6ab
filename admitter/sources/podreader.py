"""List a namespace's pods now, for whoever is about to end them.

In: the API server. Out: the pods as they are at this moment; None where there was no answer, with the reason in the log.

Why, beside a watch: a watch may be hours behind without knowing it, and what is ended by its word does not come back.
"""

import lightkube
import structlog
from lightkube.resources import core_v1

from admitter.model.cluster import KubePod
from admitter.sources import apiclient, slimpod, watch
from admitter.sources.sharing import Shared

_LOG = structlog.get_logger(__name__)


class PodReader:
    """Belongs to one event loop."""

    def __init__(self, client: lightkube.AsyncClient) -> None:
        self._client = client

    async def pods(self, namespace: str) -> tuple[KubePod, ...] | None:
        """Return all pods of a namespace."""
        shared = Shared()
        try:
            listed = self._client.list(core_v1.Pod, namespace=namespace, chunk_size=watch.PAGE)
            found = [pod async for item in listed if (pod := slimpod.pod(item, shared)) is not None]
        except apiclient.Failed as error:
            problem = watch.describe("list", "pods", "", error, apiclient.refusal(error))
            _LOG.warning("nothing is suspended: its pods cannot be seen", namespace=namespace, problem=problem)
            return None
        return tuple(found)
