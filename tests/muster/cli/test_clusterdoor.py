"""Asking in a cluster: token, authority and port-forward come through kubectl; the server here says which token it was shown.

What an API server makes of such a token is in tests/cluster/test_admitter_identity.py.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import stat
import sys

import grpc
import pytest

from hack import pki
from muster import bearer, tls
from muster.pb.muster.v1 import inspect_pb2, inspect_pb2_grpc

MUSTER = pathlib.Path(sys.executable).parent / "muster"


class Inspect(inspect_pb2_grpc.InspectServiceServicer):
    async def Status(self, request, context):  # noqa: N802 -- gRPC's name
        return inspect_pb2.StatusResponse(admitter=bearer.token_of(context.invocation_metadata()))

    async def WatchCapacity(self, request, context):  # noqa: N802
        yield inspect_pb2.WatchCapacityResponse(synced=True)


@contextlib.asynccontextmanager
async def serving(files):
    server = grpc.aio.server()
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(Inspect(), server)
    port = server.add_secure_port("127.0.0.1:0", tls.open_server_credentials(files))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@pytest.fixture
def files(tmp_path):
    return pki.create(tmp_path / "pki").issue_admitter()


@pytest.fixture
def ask(tmp_path):
    """Run muster beside a kubectl that plays these answers; each is a shell command."""

    async def run(*arguments, **answers):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        answers = {"lease": "echo {}", "configmap": "echo {}", "token": "echo", "forward": "true", **answers}
        kubectl = folder / "kubectl"
        kubectl.write_text(
            f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
case "$*" in
  *"get lease"*) {answers["lease"]};;
  *"get configmap"*) {answers["configmap"]};;
  *"create token"*) {answers["token"]};;
  *port-forward*) {answers["forward"]};;
  *) echo refused >&2; exit 1;;
esac
"""
        )
        kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
        process = await asyncio.create_subprocess_exec(
            MUSTER,
            *arguments,
            env={"PATH": f"{folder}:{os.environ['PATH']}"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    return run


def lease(holder="admitter-7f_1a2b"):
    return f"echo '{json.dumps({'spec': {'holderIdentity': holder}})}'"


def authority(files, tmp_path):
    path = tmp_path / "configmap.json"
    path.write_text(json.dumps({"data": {"ca.crt": files.ca.read_text()}}))
    return f"cat {path}"


async def test_the_token_of_the_account_is_shown_to_the_leader(ask, files, tmp_path):
    async with serving(files) as port:
        code, out, err = await ask(
            *("status", "--json", "--account", "ml/operator", "--timeout-seconds", "60"),
            lease=lease(),
            configmap=authority(files, tmp_path),
            token="echo a-token",
            forward=f'echo "Forwarding from 127.0.0.1:{port} -> 7443"; exec sleep 600',
        )
    assert code == 0, err
    assert json.loads(out)["admitter"] == "a-token"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "--namespace ml create token operator --audience=muster-admitter --duration=600s" in asked
    assert "--namespace muster-system port-forward pod/admitter-7f :7443" in asked


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"lease": "echo 'leases not found' >&2; exit 1"}, "leases not found"),
        ({"lease": "echo garbage"}, "kubectl answered with something else"),
        ({"lease": lease("")}, "names no leader"),
        ({"lease": lease()}, "has no ca.crt"),
        ({"lease": lease(), "configmap": """echo '{"data":{"ca.crt":"x"}}'""", "token": "exit 1"}, "kubectl failed"),
        (
            {
                "lease": lease(),
                "configmap": """echo '{"data":{"ca.crt":"x"}}'""",
                "forward": "echo 'pods not found'; exit 1",
            },
            "kubectl port-forward: pods not found",
        ),
    ],
)
async def test_what_is_missing_on_the_way_is_named(ask, answers, said):
    code, _, err = await ask("status", "--account", "ml/operator", **answers)
    assert code == 3, "nor did kubectl have the Nodes"
    assert f"no way to the admitter: {said}" in err or said in err


@pytest.mark.parametrize("account", ["operator", "ml/", "/operator", "a/b/c"])
async def test_an_account_has_a_namespace(ask, account):
    code, _, err = await ask("status", "--account", account)
    assert (code, f"--account: {account!r} is not NAMESPACE/NAME" in err) == (2, True)
