"""What a watch's stream may hold: bookmarks of every kind, whatever a tenant writes, and what is no event at all."""

import itertools
import json

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightkube.core import exceptions
from lightkube.resources import batch_v1, core_v1, resource_v1

from admitter.sources import apiclient, events, workloads

KINDS = (
    core_v1.Node,
    core_v1.Pod,
    core_v1.Namespace,
    resource_v1.ResourceSlice,
    resource_v1.DeviceClass,
    batch_v1.Job,
    workloads._JOB_SET,
    workloads._POD_GROUP,
    workloads._COSCHEDULING,
)
EMPTY = {
    # As kube-apiserver 1.37 sends them: the zero value of the kind, with a version.
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Job": {"spec": {"template": {"metadata": {"creationTimestamp": None}, "spec": {"containers": None}}}},
    "ResourceSlice": {
        "spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}, "devices": None}
    },
    "Node": {"spec": {}, "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}},
}


def a_line(kind, content):
    return json.dumps({"type": kind, "object": content}, ensure_ascii=False).encode() + b"\n"


def a_bookmark(kind, version="40"):
    metadata = {"resourceVersion": version, "creationTimestamp": None}
    return a_line("BOOKMARK", {"kind": kind, "metadata": metadata, **EMPTY.get(kind, {"spec": None})})


def a_pod(version="41", **annotations):
    metadata = {"name": "a", "namespace": "t", "uid": "u", "resourceVersion": version, "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}


async def heard(chunks, resource=core_v1.Pod):
    """Return the events of a stream that comes in these chunks."""

    async def content():
        for chunk in chunks:
            yield chunk

    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=content()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://api") as wire:
        return [event async for event in events.follow(wire, resource, "10")]


@pytest.mark.parametrize(
    "resource", KINDS, ids=lambda each: each._api_info.plural + "." + each._api_info.resource.group
)
async def test_a_bookmark_of_any_kind_brings_a_version_and_no_object(resource):
    kind = resource._api_info.resource.kind
    (event,) = await heard([a_bookmark(kind)], resource)
    assert (event.version, event.item, event.is_gone) == ("40", None, False)


async def test_what_a_tenant_writes_ends_no_line():
    """Unicode knows more line ends than the newline; the API server sends some of them as they are."""
    text = "one\u0085two\u2028three\u2029four\x7f"
    (event,) = await heard([a_line("MODIFIED", a_pod(note=text))])
    assert event.item.metadata.annotations == {"note": text}


@given(cuts=st.lists(st.integers(min_value=0, max_value=1200), max_size=12))
async def test_a_stream_says_the_same_however_it_is_cut(cuts):
    whole = a_line("ADDED", a_pod("41", note="ü\u0085")) + a_bookmark("Pod", "50") + a_line("DELETED", a_pod("60"))
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    chunks = [whole[start:end] for start, end in itertools.pairwise(edges)]
    assert [(each.version, each.is_gone) for each in await heard(chunks)] == [
        ("41", False),
        ("50", False),
        ("60", True),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "ADDED", "obj',
        b'{"type": "BOOKMARK", "object": {}}\n',
        b'{"type": "BOOKMARK", "object": {"metadata": null}}\n',
        b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": 7}}}\n',
        b'{"type": "ADDED", "object": {"spec": {"containers": []}}}\n',
        b'{"type": "ADDED"}\n',
        b"[]\n",
        b"\n",
        b"\xff\xfe\n",
    ],
)
async def test_what_is_no_event_is_told_as_a_failure_that_a_watch_outlives(line):
    with pytest.raises(apiclient.Failed):
        await heard([line])


async def test_an_expired_version_is_the_servers_own_word():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(exceptions.ApiError) as caught:
        await heard([a_line("ERROR", status)])
    assert caught.value.status.code == 410
