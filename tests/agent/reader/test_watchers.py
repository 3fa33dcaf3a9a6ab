"""A stream that nobody reads costs a bounded backlog."""

from agent.reader import watchers
from muster.pb.muster.reader.v1 import reader_pb2


async def test_a_watcher_that_does_not_keep_up_is_cut_off_and_grows_no_more():
    streams = watchers.Watchers()
    watcher = streams.subscribe()
    for _ in range(3 * watchers._LONGEST_BACKLOG):
        streams.publish(reader_pb2.WatchResponse())
    streams.end()
    assert watcher._events.qsize() <= watchers._LONGEST_BACKLOG
    assert await watcher.next() is None


async def test_a_watcher_that_keeps_up_hears_everything_and_then_the_end():
    streams = watchers.Watchers()
    watcher = streams.subscribe()
    streams.publish(reader_pb2.WatchResponse())
    streams.end()
    assert await watcher.next() == reader_pb2.WatchResponse()
    assert await watcher.next() is None
