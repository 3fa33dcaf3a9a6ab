"""The control socket: who asks well gets answers, everybody else an error."""

import asyncio
import json
import stat

import pytest

from agent.sources import control


async def echo(request):
    if request.get("bad"):
        raise control.BadRequest("bad: is bad")
    for number in range(request.get("lines", 1)):
        yield {"line": number}


@pytest.fixture
async def server(tmp_path):
    made = control.ControlServer(tmp_path / "dir" / "agent.sock", {"echo": echo})
    await made.start()
    yield tmp_path / "dir" / "agent.sock"
    await made.close()


async def asked(path, request):
    return [line async for line in control.ask(path, request)]


async def test_answers_come_line_by_line(server):
    """One request, many answers, then the end."""
    assert await asked(server, {"command": "echo", "lines": 3}) == [{"line": 0}, {"line": 1}, {"line": 2}]


async def test_only_the_owner_may_ask(server):
    """Closing NVML is not for everybody on the node."""
    assert stat.S_IMODE(server.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\xff\xfe\n", "codec"),
        (b"[1]\n", "expected an object"),
        (b'{"command": "reboot"}\n', "none of echo"),
        (b'{"command": "echo", "bad": true}\n', "bad: is bad"),
        (b"\n", "Expecting value"),
        (b"x" * 10_000 + b"\n", "limit"),
    ],
)
async def test_nonsense_is_answered_with_an_error(server, line, said):
    """The server says what is wrong and stays up."""
    reader, writer = await asyncio.open_unix_connection(str(server))
    writer.write(line)
    answer = json.loads(await reader.readline())
    assert said in answer["error"]
    writer.close()
    await writer.wait_closed()
    assert await asked(server, {"command": "echo"}) == [{"line": 0}]


async def test_a_silent_client_is_dropped(server, monkeypatch):
    """A connection is no promise."""
    monkeypatch.setattr(control, "REQUEST_SECONDS", 0.05)
    reader, writer = await asyncio.open_unix_connection(str(server))
    assert "no request" in json.loads(await reader.readline())["error"]
    writer.close()
    await writer.wait_closed()


async def test_a_socket_left_behind_is_replaced(tmp_path):
    """An agent that was killed does not keep its successor from listening."""
    path = tmp_path / "agent.sock"
    path.touch()
    server = control.ControlServer(path, {"echo": echo})
    await server.start()
    assert await asked(path, {"command": "echo"}) == [{"line": 0}]
    await server.close()
    with pytest.raises(OSError, match="No such file"):
        await asked(path, {"command": "echo"})


async def test_a_living_agents_socket_is_not_taken(server, tmp_path):
    """Two agents with one socket: the second is told, and the first can still be asked."""
    path = tmp_path / "dir" / "agent.sock"
    second = control.ControlServer(path, {"echo": echo})
    with pytest.raises(OSError, match="another agent answers there"):
        await second.start()
    await second.close()
    assert await asked(path, {"command": "echo"}) == [{"line": 0}]
