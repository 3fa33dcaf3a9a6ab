"""`muster-admitter cleanup` where there is no API server to ask."""

import socket

from click.testing import CliRunner

from admitter.cleanupcommand import command

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:PORT"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def run(*arguments, **environ):
    return CliRunner().invoke(command, arguments, env=environ)


def test_no_kubeconfig_is_bad_input(tmp_path):
    done = run("--kubeconfig", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"muster-admitter: --kubeconfig: {tmp_path / 'none'}: ")


def test_an_api_server_that_is_not_there_gives_no_answer(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        path = tmp_path / "config"
        path.write_text(KUBECONFIG.replace("PORT", str(taken.getsockname()[1])))
        done = run(KUBECONFIG=str(path))
    assert done.exit_code == 3
    assert "http://127.0.0.1:" in done.stderr
