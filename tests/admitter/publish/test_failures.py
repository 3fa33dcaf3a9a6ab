"""What a failed request at the API server comes to."""

import httpx2
import pytest
from lightkube.core import exceptions

from admitter.publish import nodes
from admitter.publish.nodes import Outcome


def refused(code, reason):
    body = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code}
    request = httpx2.Request("PATCH", "https://127.0.0.1/api/v1/namespaces/team-a/pods/worker-0")
    return exceptions.ApiError(request=request, response=httpx2.Response(code, json=body, request=request))


@pytest.mark.parametrize(
    ("code", "reason", "outcome"),
    [
        (401, "Unauthorized", Outcome.BUSY),
        (403, "Forbidden", Outcome.REFUSED),
        (404, "NotFound", Outcome.GONE),
        (409, "Conflict", Outcome.CONFLICT),
        (422, "Invalid", Outcome.INVALID),
        (429, "TooManyRequests", Outcome.BUSY),
        (500, "InternalError", Outcome.BUSY),
        (503, "ServiceUnavailable", Outcome.BUSY),
    ],
)
def test_only_what_no_second_try_can_change_is_a_refusal(code, reason, outcome):
    """A 401 is a token that is being renewed: it is read anew for each request."""
    assert nodes.failure(refused(code, reason)).outcome is outcome


def test_no_answer_is_no_refusal():
    assert nodes.failure(httpx2.ConnectError("no route")).outcome is Outcome.BUSY
