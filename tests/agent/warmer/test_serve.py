"""What the agent tells the warmer, over its real socket."""

import logging

import grpc
import pytest

from agent.core import warmlist, warmref
from agent.warmer import command, serve
from agent.warmer.client import Client
from agent.warmer.config import WarmerConfig
from muster.pb.muster.v1 import warmth_pb2
from muster.pb.muster.warmer.v1 import warmer_pb2, warmer_pb2_grpc

OPENER = warmth_pb2.PullCredential(username="u", password="s3cret")


@pytest.fixture
async def told(tmp_path):
    """Return an engine that is not running, and a function that tells its service something."""
    config = WarmerConfig(
        socket=tmp_path / "w.sock", containerd_socket=tmp_path / "none.sock", hint_registries=("r.io",)
    )
    runtime = Client(config.containerd_socket, "muster")
    working = command.wired(config, warmlist.WarmList(), runtime)
    async with (
        serve.serving(serve.WarmerService(config, working), config.socket),
        grpc.aio.insecure_channel(f"unix:{config.socket}") as channel,
    ):
        stub = warmer_pb2_grpc.WarmerServiceStub(channel)

        async def tell(*references, starting=0, **secret):
            hints = [warmer_pb2.Hint(reference=reference, **secret) for reference in references]
            await stub.Tell(warmer_pb2.TellRequest(hints=hints, starting_pods=starting), timeout=30)
            return [str(wanted.reference) for wanted in working._estate.hinted]

        yield working, tell
    await runtime.close()


def digest(number):
    return f"sha256:{number:064x}"


async def test_starting_pods_are_heard_whatever_the_hints_are_like(told):
    """Too many hints: the best are followed, and no pull goes on beside a starting pod."""
    working, tell = told
    names = [f"r.io/ml/app@{digest(number)}" for number in range(serve.MAX_HINTS + 50)]
    assert await tell(*names, starting=3) == names[: serve.MAX_HINTS]
    assert working.busy.why() == "3 pods are starting"


async def test_a_hint_that_may_not_be_followed_is_left_out(told):
    _, tell = told
    own = f"r.io/ml/app@{digest(1)}"
    assert await tell(own, "r.io/ml/app:v1", f"b.io/ml/app@{digest(2)}", "@@", "") == [own]


async def test_a_pull_secret_is_kept_for_its_hint_alone_and_is_in_no_log(told, caplog):
    caplog.set_level(logging.DEBUG)
    working, tell = told
    own = f"r.io/ml/app@{digest(1)}"
    await tell(own, f"b.io/x@{digest(2)}", secret="s/1", credential=OPENER)
    assert working._estate.secrets.of(warmref.parse(own)) == ("u", "s3cret")
    assert working._estate.secrets.of(warmref.parse(f"b.io/x@{digest(2)}")) is None
    await tell(own, secret="s/1")
    assert working._estate.secrets.of(warmref.parse(own)) == ("u", "s3cret")
    await tell()
    assert working._estate.secrets.of(warmref.parse(own)) is None
    assert "s3cret" not in caplog.text
