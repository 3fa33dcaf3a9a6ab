"""The agents of a benchmark hold nothing for pods that went while nobody looked."""

import doctest

from lightkube.models import core_v1 as models
from lightkube.models import meta_v1
from lightkube.resources import core_v1 as core

from hack.bench import kubefeed, podwatch


def test_examples():
    results = doctest.testmod(podwatch)
    assert results.attempted > 0
    assert results.failed == 0


def test_a_pod_that_is_told_gone_holds_nothing(tmp_path):
    limits = models.ResourceRequirements(limits={kubefeed.GPU: "2"})
    spec = models.PodSpec(nodeName="n1", containers=[models.Container(name="main", resources=limits)])
    pod = core.Pod(metadata=meta_v1.ObjectMeta(uid="u1"), spec=spec)
    feed = kubefeed.Feed(tmp_path, ["n1"], [])
    feed.observe(pod, is_gone=False)
    assert feed.held("n1") == (("u1", 2),)
    (gone,) = podwatch.missing({"u1": pod}, {})
    feed.observe(gone, is_gone=True)
    assert feed.held("n1") == ()


def test_of_a_list_what_has_ended_comes_first():
    ended, running, unknown = (
        core.Pod(metadata=meta_v1.ObjectMeta(name=phase), status=models.PodStatus(phase=phase))
        for phase in ("Failed", "Running", "Unknown")
    )
    young = core.Pod(metadata=meta_v1.ObjectMeta(name="young"))
    assert sorted([running, young, ended, unknown], key=podwatch.is_open)[0] is ended
