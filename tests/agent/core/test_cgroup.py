"""A process belongs to the pod that its cgroup names, on every driver and runtime."""

import pytest

from agent.core import cgroup
from muster.model.reading import Known, Unknown

UID = "d08415d6-60c4-5c07-8c84-66afac2ba5f6"
SLICE = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-1.scope", UID),
        (f"/kubepods.slice/kubepods-pod{SLICE}.slice/crio-1.scope/container", UID),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice/cri-containerd-1.scope", UID),
        (f"/kubepods/besteffort/pod{UID}/1234", UID),
        (f"/../../kubepods/pod{UID}/1234", UID),
        ("/user.slice/user-1000.slice/session-1.scope", ""),
        ("/system.slice/docker-0123.scope", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_owner(path, owner):
    assert cgroup.owner_of(path) == Known(owner)


def test_a_pod_that_cannot_be_named_is_not_nobody():
    assert isinstance(cgroup.owner_of("/kubepods.slice/strange"), Unknown)
