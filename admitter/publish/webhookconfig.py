"""Keep the authority of our certificate in the webhook configuration, so that the API server believes our webhook.

In: the authority's file, which whoever rotates certificates replaces. Out: a patch of `clientConfig.caBundle`, by the leader,
where it is not what the file says.

Invariants: nothing else of the configuration is touched, and webhooks of other names are not in the request. A configuration
that is not there is nobody's fault: the cluster uses the policy, or nothing yet.

Why the whole file: it may hold the old authority and the new one while certificates are rotated.
"""

import asyncio
import base64
import pathlib

import lightkube
import structlog
from lightkube.resources import admissionregistration_v1 as registration
from lightkube.types import PatchType

from admitter.model.leadership import Guard
from admitter.publish.nodes import Failed, Outcome, failure

_LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 30.0
"""A Secret's new content takes about a minute to reach a pod's folder; one look more is little."""


class WebhookConfig:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: lightkube.AsyncClient,
        guard: Guard,
        *,
        name: str,
        authority: pathlib.Path,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._client, self._guard, self._name, self._authority = client, guard, name, authority
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            term = self._guard.leadership.term
            if term:
                try:
                    await self.look(term)
                except Failed as error:
                    _LOG.warning("the webhook configuration was not seen to", name=self._name, problem=str(error)[:300])
            await asyncio.sleep(self._look_seconds if term else 1.0)

    async def look(self, term: int) -> bool:
        """Make it fit once, if we still lead in this term then; return whether something was written."""
        bundle = base64.b64encode(self._authority.read_bytes()).decode()
        try:
            found = await self._client.get(registration.MutatingWebhookConfiguration, self._name)
        except Failed as error:
            if failure(error).outcome is Outcome.GONE:
                return False
            raise
        wrong = [each.name for each in found.webhooks or () if each.clientConfig.caBundle != bundle]
        if not wrong or not self._guard.may_write(term):
            return False
        assert found.metadata is not None
        body = {
            "metadata": {"resourceVersion": found.metadata.resourceVersion},
            "webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}} for name in wrong],
        }
        await self._client.patch(
            registration.MutatingWebhookConfiguration, self._name, body, patch_type=PatchType.STRATEGIC
        )
        _LOG.info("webhook configuration has our authority", name=self._name, webhooks=len(wrong))
        return True
