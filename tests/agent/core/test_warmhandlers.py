"""Which snapshotter a handler leads to: as two lines of containerd tell it, and as nonsense does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmhandlers

HAVE = frozenset(("overlayfs", "devmapper", "stargz"))


def told(**containerd):
    return json.dumps({"containerd": containerd, "cni": {}})


@pytest.mark.parametrize(
    ("configuration", "place", "folders", "default"),
    [
        (told(snapshotter="stargz"), "/r/io.containerd.snapshotter.v1.overlayfs", {"overlayfs": "/r/x"}, "stargz"),
        (told(), "/r/io.containerd.snapshotter.v1.overlayfs", {}, "overlayfs"),
        (told(), "/var/lib/sg", {"overlayfs": "/r/o", "stargz": "/var/lib/sg"}, "stargz"),
        (told(), "", {"native": ""}, ""),
        ("", "", {}, ""),
    ],
    ids=["1.6 says so", "2 says where", "a proxy's folder", "nobody says", "nothing"],
)
def test_the_default(configuration, place, folders, default):
    assert warmhandlers.default_of(configuration, place, folders) == default


def test_a_handler_leads_to_its_own_or_to_the_default():
    runtimes = {
        "runc": {"snapshotter": ""},
        "kata": {"snapshotter": "devmapper"},
        "old": {},
        "gone": {"snapshotter": "zfs"},
    }
    configuration = told(defaultRuntimeName="runc", runtimes=runtimes)
    assert warmhandlers.handlers_of(configuration, "overlayfs", HAVE) == {
        "": "overlayfs",
        "kata": "devmapper",
        "old": "overlayfs",
        "runc": "overlayfs",
    }


def test_the_default_runtime_may_have_a_snapshotter_of_its_own():
    configuration = told(defaultRuntimeName="lazy", runtimes={"lazy": {"snapshotter": "stargz"}})
    assert warmhandlers.handlers_of(configuration, "overlayfs", HAVE) == {"": "stargz", "lazy": "stargz"}


def test_a_flood_of_handlers_is_cut():
    runtimes = {f"h{number}": {} for number in range(1000)} | {"x" * 1000: {}}
    found = warmhandlers.handlers_of(told(runtimes=runtimes), "overlayfs", HAVE)
    assert len(found) == warmhandlers.MAX_HANDLERS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["containerd", "runtimes", "snapshotter", "defaultRuntimeName", "a"]), inner)
    ),
    max_leaves=12,
)


@given(content=JSON | st.text().map(json.dumps), default=st.sampled_from(["", "overlayfs", "zfs"]))
def test_nonsense_names_no_snapshotter_that_is_not_there(content, default):
    found = warmhandlers.handlers_of(json.dumps(content), default, HAVE)
    assert set(found.values()) <= HAVE
    assert isinstance(warmhandlers.default_of(json.dumps(content), "", {}), str)
