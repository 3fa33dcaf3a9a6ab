"""Servers that follow each other at one path, on real sockets."""

import asyncio
import os
import stat

import grpc
import grpc.aio
import pytest

from agent import unixserver

METHOD = "/muster.test/Name"


@pytest.fixture
async def named():
    """Return a function that starts a server at a path which says its name."""
    started = []

    async def start(name, path):
        async def answer(_, __):
            return name

        server = grpc.aio.server()
        methods = {"Name": grpc.unary_unary_rpc_method_handler(answer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("muster.test", methods),))
        started.append(server)
        return server, await unixserver.start(server, path, 0o660)

    yield start
    for server in started:
        await server.stop(grace=None)


async def who_answers(path):
    # Channels share connections by the name of the path, and a connection goes on with the server that it was made to.
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{path}", options=alone) as channel:
        return await channel.unary_unary(METHOD)(b"", timeout=10)


async def test_the_later_server_has_the_path_and_keeps_it_when_the_earlier_one_ends(tmp_path, named):
    path = tmp_path / "reader.sock"
    earlier, first = await named(b"earlier", path)
    assert await who_answers(path) == b"earlier"
    _, second = await named(b"later", path)
    assert await who_answers(path) == b"later"
    await earlier.stop(grace=0.1)
    await asyncio.sleep(0.5)  # gRPC unlinks what it was given only after a stop has been answered.
    assert await who_answers(path) == b"later"
    assert unixserver.identity(path) == second != first
    assert [file.name for file in tmp_path.iterdir()] == ["reader.sock"]


async def test_a_socket_that_was_taken_away_or_is_nobodys_is_lost(tmp_path, named):
    path = tmp_path / "reader.sock"
    _, own = await named(b"mine", path)
    assert not unixserver.is_lost(path, own)
    os.unlink(path)
    assert unixserver.is_lost(path, own)
    path.write_text("of somebody who ended")
    assert unixserver.is_lost(path, own)
    await named(b"another", path)
    assert not unixserver.is_lost(path, own)


async def test_its_mode_is_right_and_other_files_keep_theirs(tmp_path, named):
    await named(b"mine", tmp_path / "deeper" / "reader.sock")
    (tmp_path / "other").touch()
    assert stat.S_IMODE(os.stat(tmp_path / "deeper" / "reader.sock").st_mode) == 0o660
    assert stat.S_IMODE(os.stat(tmp_path / "other").st_mode) == 0o666 & ~current_umask()


async def test_where_a_folder_is_nothing_is_served_and_nothing_left(tmp_path, named):
    (tmp_path / "reader.sock").mkdir()
    with pytest.raises(IsADirectoryError):
        await named(b"mine", tmp_path / "reader.sock")
    assert [file.name for file in tmp_path.iterdir()] == ["reader.sock"]


def current_umask():
    now = os.umask(0)
    os.umask(now)
    return now
