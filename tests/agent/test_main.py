"""The command line: what it imports, how it ends."""

import socket
import subprocess
import sys
import threading

import click.testing
import pytest

from agent import main, run
from agent.config import AgentConfig
from agent.model.policy import Mode
from muster.settings import InvalidSettings


@pytest.fixture
def cli():
    return click.testing.CliRunner()


def test_the_reader_does_not_carry_the_agents_stack():
    """Parsing the command line loads neither gRPC nor the feed, logs and metrics: the reader must stay small."""
    script = (
        "import sys, agent.main, agent.reader.config\n"
        "heavy = {'grpc', 'structlog', 'prometheus_client', 'agent.loop', 'agent.publish.feed', 'rich', 'jsonschema'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("command", ["run", "read"])
def test_wrong_settings_end_with_status_two(cli, command, monkeypatch):
    """All problems on standard error, one a line."""
    monkeypatch.delenv("MUSTER_AGENT_NODE", raising=False)
    flags = ["--poll-seconds", "0", "--metrics-address", "x"] if command == "run" else ["--call-timeout-seconds", "no"]
    done = cli.invoke(main.main, [command, *flags])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == (2 if command == "run" else 1)


@pytest.mark.parametrize("command", ["capture", "release"])
def test_no_agent_ends_with_status_three(cli, command, tmp_path):
    """Nobody at the socket is no answer, not a failure of the node."""
    done = cli.invoke(main.main, [command, "--control-socket", str(tmp_path / "none")])
    assert done.exit_code == 3
    assert "no agent answers" in done.stderr


@pytest.fixture
def listener(tmp_path):
    """A socket on which somebody says one line and goes; yields its path and takes the line."""
    path = tmp_path / "agent.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    line = []

    def serve():
        peer, _ = server.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(line[0])

    thread = threading.Thread(target=serve)

    def say(text):
        line.append(text)
        thread.start()
        return path

    yield say
    thread.join(20)
    server.close()


@pytest.mark.parametrize("said", [b"\x00\x00\x12\x04\x00\n", b"[1]\n", b"7\n"])
@pytest.mark.parametrize("command", ["capture", "release"])
def test_another_program_at_the_socket_is_no_answer(cli, listener, command, said):
    """A kubelet's socket, by mistake."""
    path = listener(said)
    done = cli.invoke(main.main, [command, "--control-socket", str(path)])
    assert done.exit_code == 3
    assert done.stderr == f"no agent answers at {path}: what listens there is something else\n"


def test_a_release_of_no_number_is_bad_input(cli):
    done = cli.invoke(main.main, ["release", "--minutes", "nan"])
    assert (done.exit_code, "--minutes" in done.stderr) == (2, True)


def test_an_error_is_no_line_of_a_capture(cli, listener):
    done = cli.invoke(main.main, ["capture", "--control-socket", str(listener(b'{"error": "no such command"}\n'))])
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "not captured: no such command\n")


def test_a_place_where_no_capture_can_be_written(cli, listener, tmp_path):
    arguments = [
        "capture",
        "--control-socket",
        str(listener(b'{"node": "a"}\n')),
        "--output",
        str(tmp_path / "no" / "x"),
    ]
    done = cli.invoke(main.main, arguments)
    assert done.exit_code == 2
    assert done.stderr == f"--output: {tmp_path / 'no' / 'x'}: No such file or directory\n"


def test_a_reader_that_cannot_serve_names_its_socket(tmp_path):
    (tmp_path / "there").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "agent.main", "read", "--socket", str(tmp_path / "there")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(f"--socket: {tmp_path / 'there'}: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"mode": "closed", "open_device_files": []}, 0, "NVML session: closed; open device files of ours: 0"),
        (
            {"mode": "open", "open_device_files": ["/dev/nvidia0"]},
            0,
            "NVML session: open; open device files of ours: 1",
        ),
        ({"mode": "closed", "open_device_files": ["/dev/nvidia0"]}, 1, "/dev/nvidia0"),
        ({"mode": "closed", "error": "NotConfirmed", "detail": "no answer"}, 1, "NotConfirmed no answer"),
    ],
)
def test_what_a_release_says(answer, status, said):
    """Released is what is proven closed."""
    text, code = main.proof_of(answer)
    assert code == status
    assert said in text


def test_a_policy_file_changes_modes_and_keeps_the_time_scale(tmp_path):
    """The file is the core's policy, the scale the configuration's."""
    path = tmp_path / "policy.json"
    path.write_text('{"modes": {"E5": "observe"}}')
    policy = run.load_policy(AgentConfig(node="a", policy=path, time_scale=99))
    assert policy.mode("E5") is Mode.OBSERVE
    assert policy.time_scale == 99


@pytest.mark.parametrize("text", ["{", '{"modes": {"E5": "loud"}}', '{"unknown": 1}', "[]", "[" * 100_000])
def test_a_policy_that_does_not_fit_is_refused(tmp_path, text):
    """Nothing starts on half a policy."""
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(InvalidSettings, match="--policy"):
        run.load_policy(AgentConfig(node="a", policy=path))
