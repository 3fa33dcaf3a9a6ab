"""The admitter's word about the node, and how it ages."""

from agent.sources.slice import SliceStore
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown

NODE = kube.NodeSlice(node_object=Known(kube.NodeObject(capacity={}, allocatable={})), pods=Known(()))


def a_store(*, expect=True):
    return SliceStore(grace_seconds=45, expect_api_server=expect)


def test_a_standing_stream_keeps_a_slice_fresh():
    """No news from a live stream is a quiet node, not an old one."""
    store = a_store()
    assert store.offer(NODE, age_seconds=0, now=100)
    assert not store.offer(NODE, age_seconds=0, now=101)
    assert store.read(5000).content == NODE
    assert store.read(5000).read_at == 5000


def test_a_broken_stream_lets_it_age_and_then_takes_it_away():
    """Within the grace the planes count with their age; after it they are Unknown, never absent."""
    store = a_store()
    store.offer(NODE, age_seconds=0, now=100)
    store.disconnected(200)
    store.disconnected(210)
    within = store.read(240)
    assert within.content == NODE
    assert within.read_at == 200
    after = store.read(246).content
    assert isinstance(after.pods, Unknown)
    assert after.pods.reason == "AdmitterGone"
    assert after.pods != NOT_COLLECTED
    store.connected(api_server=True)
    assert isinstance(store.read(300).content.pods, Unknown)
    store.offer(NODE, age_seconds=0, now=301)
    assert store.read(302).content == NODE


def test_a_slice_of_an_admitter_that_does_not_hear_the_api_server_ages():
    """Though its stream stands: nobody would tell of a change. The next slice without an age makes it current again."""
    store = a_store()
    store.offer(NODE, age_seconds=0, now=100)
    store.offer(NODE, age_seconds=10, now=200)
    assert (store.read(210).content, store.read(210).read_at) == (NODE, 190)
    gone = store.read(240).content
    assert {gone.pods.reason, gone.node_object.reason} == {"ApiServerGone"}
    store.offer(NODE, age_seconds=0, now=250)
    assert (store.read(9000).content, store.read(9000).read_at) == (NODE, 9000)


def test_before_any_word_the_planes_are_unreadable():
    """An agent with admitters to hear from does not take silence for a world without API server."""
    view = a_store().read(0)
    assert view.api_server
    assert isinstance(view.content.node_object, Unknown)
    assert view.content.node_object != NOT_COLLECTED


def test_a_world_without_api_server():
    """Then both planes are absent, by the admitter's word or because there is none to ask."""
    told = a_store()
    told.connected(api_server=False)
    for store in (told, a_store(expect=False)):
        view = store.read(0)
        assert not view.api_server
        assert view.content.pods == NOT_COLLECTED
