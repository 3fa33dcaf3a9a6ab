"""Servers that follow each other at one path, on real sockets."""

import asyncio
import os
import stat

import grpc
import grpc.aio

from agent import unixserver

METHOD = "/muster.test/Name"


async def named(name, path):
    async def answer(_, __):
        return name

    server = grpc.aio.server()
    methods = {"Name": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("muster.test", methods),))
    return server, await unixserver.start(server, path, 0o660)


async def who_answers(path):
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        return await channel.unary_unary(METHOD)(b"", timeout=10)


async def test_the_later_server_has_the_path_and_keeps_it_when_the_earlier_one_ends(tmp_path):
    path = tmp_path / "reader.sock"
    earlier, first = await named(b"earlier", path)
    assert await who_answers(path) == b"earlier"
    later, second = await named(b"later", path)
    assert await who_answers(path) == b"later"
    await earlier.stop(grace=0.1)
    del earlier
    await asyncio.sleep(0.5)  # gRPC unlinks what it was given only after a stop has been answered.
    assert await who_answers(path) == b"later"
    assert unixserver.identity(path) == second != first
    assert [file.name for file in tmp_path.iterdir()] == ["reader.sock"]
    await later.stop(grace=None)


async def test_a_socket_that_was_taken_away_or_is_nobodys_is_lost(tmp_path):
    path = tmp_path / "reader.sock"
    server, own = await named(b"mine", path)
    assert not unixserver.is_lost(path, own)
    os.unlink(path)
    assert unixserver.is_lost(path, own)
    path.write_text("of somebody who ended")
    assert unixserver.is_lost(path, own)
    other, _ = await named(b"another", path)
    assert not unixserver.is_lost(path, own)
    for each in (server, other):
        await each.stop(grace=None)


async def test_its_mode_is_right_and_other_files_keep_theirs(tmp_path):
    server, _ = await named(b"mine", tmp_path / "deeper" / "reader.sock")
    (tmp_path / "other").touch()
    assert stat.S_IMODE(os.stat(tmp_path / "deeper" / "reader.sock").st_mode) == 0o660
    assert stat.S_IMODE(os.stat(tmp_path / "other").st_mode) == 0o666 & ~current_umask()
    await server.stop(grace=None)


def current_umask():
    now = os.umask(0)
    os.umask(now)
    return now
