"""What is applied on a pod: one condition, and its time moves only with its status."""

import dataclasses
import datetime

from admitter.model.cluster import Condition
from admitter.publish import podconditions
from muster.model import labels
from tests.admitter.grouppods import a_pod

NOW = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
EARLIER = datetime.datetime(2026, 12, 1, 11, tzinfo=datetime.UTC)


def test_nothing_else_is_in_the_request():
    body = podconditions.applied(a_pod("p"), labels.PLACED, "False", "NotEnoughUnits", "needs 16 GPUs", NOW)
    assert body == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a", "uid": "uid-p"},
        "status": {
            "conditions": [
                {
                    "type": "muster.dev/Placed",
                    "status": "False",
                    "reason": "NotEnoughUnits",
                    "message": "needs 16 GPUs",
                    "lastTransitionTime": "2026-12-01T12:00:00Z",
                }
            ]
        },
    }


def test_the_time_is_of_the_status():
    stood = Condition(type=labels.PLACED.full, status="False", reason="Topology", message="", since=EARLIER)
    pod = dataclasses.replace(a_pod("p"), conditions=(stood,))
    times = {
        status: podconditions.applied(pod, labels.PLACED, status, "r", "m", NOW)["status"]["conditions"][0][
            "lastTransitionTime"
        ]
        for status in ("False", "True")
    }
    assert times == {"False": "2026-12-01T11:00:00Z", "True": "2026-12-01T12:00:00Z"}
