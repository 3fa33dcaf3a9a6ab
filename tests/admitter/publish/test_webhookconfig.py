"""Our authority is written only in the term in which it was found missing. On a real API server: tests/cluster/test_gate_on.py."""

from lightkube.models import admissionregistration_v1 as models
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources import admissionregistration_v1 as registration

from admitter.publish.webhookconfig import WebhookConfig


class Elector:
    """Leads in a term."""

    def __init__(self, term):
        self.term = term

    def may_write(self, term):
        return term > 0 and term == self.term


class ApiServer:
    """Answers a read with a configuration that lacks our authority; somebody may lead by then."""

    def __init__(self, elector, term_meanwhile):
        self.elector, self.term_meanwhile = elector, term_meanwhile
        self.patches = []

    async def get(self, _kind, name):
        self.elector.term = self.term_meanwhile
        hook = models.MutatingWebhook(
            admissionReviewVersions=["v1"],
            clientConfig=models.WebhookClientConfig(),
            name="labelled.gates.muster.dev",
            sideEffects="None",
        )
        return registration.MutatingWebhookConfiguration(
            metadata=ObjectMeta(name=name, resourceVersion="1"), webhooks=[hook]
        )

    async def patch(self, _kind, _name, body, **_):
        self.patches.append(body)


async def looked(tmp_path, term_meanwhile):
    (tmp_path / "ca.crt").write_bytes(b"authority")
    elector = Elector(7)
    api = ApiServer(elector, term_meanwhile)
    written = await WebhookConfig(api, elector, name="muster-gates", authority=tmp_path / "ca.crt").look(7)
    return written, len(api.patches)


async def test_it_is_written_in_the_term_in_which_it_was_found_missing(tmp_path):
    assert await looked(tmp_path, 7) == (True, 1)


async def test_it_is_not_written_in_a_later_term_or_in_none(tmp_path):
    assert await looked(tmp_path, 8) == (False, 0)
    assert await looked(tmp_path, 0) == (False, 0)
