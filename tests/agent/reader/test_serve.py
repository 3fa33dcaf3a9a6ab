"""What the service answers when its own code fails."""

import logging

from agent.reader import config, serve
from muster.pb.muster.reader.v1 import reader_pb2


async def test_a_plane_that_nobody_foresaw_is_an_answer_too(caplog):
    """A parser that raises is the plane's reason and a line in the log, never a failed call."""
    service = serve.ReaderService(
        config.ReaderConfig(),
        nvml_session=None,
        log=None,
        follower=None,
        happened=None,
        streams=None,
        end=lambda code, reason: None,
    )
    with caplog.at_level(logging.ERROR):
        answer = await service.Read(reader_pb2.ReadRequest(kernel_log=reader_pb2.KernelLogRequest()), None)
    assert answer.error.error == "ReadFailed"
    assert "kernel_log" in caplog.text
