"""What Jobs and JobSets say about who suspends them."""

import pytest
from lightkube import generic_resource
from lightkube.models import batch_v1 as models
from lightkube.models import core_v1, meta_v1
from lightkube.resources import batch_v1

from admitter.sources import workloads

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
JOB_SET = generic_resource.create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


@pytest.mark.parametrize(
    ("labels", "manager", "expected"),
    [
        ({}, None, False),
        (QUEUE, None, True),
        ({}, "kueue.x-k8s.io/multikueue", True),
        ({}, "kubernetes.io/job-controller", False),
        ({}, "jobset.sigs.k8s.io/jobset-controller", False),
    ],
)
def test_whose_word_a_suspension_is(labels, manager, expected):
    metadata = meta_v1.ObjectMeta(name="train", namespace="team-a", uid="u", labels=labels)
    spec = models.JobSpec(template=core_v1.PodTemplateSpec(), managedBy=manager)
    assert workloads.job(batch_v1.Job(metadata=metadata, spec=spec)).is_managed is expected
    whole = JOB_SET.from_dict({"metadata": metadata.to_dict(), "spec": {"managedBy": manager}})
    assert workloads.job_set(whole).is_managed is expected
