"""The way to an admitter in a cluster, opened with the user's own kubectl: a port-forward to the leader, and a token.

In: the namespace that Muster runs in, and a service account that the user may make tokens for. Out: an address on this
machine, the authority's certificate and the token, for as long as they are needed.

Invariants: nothing is written to disk and nothing is left open: kubectl ends with us, even if we are killed. The token is good
for Muster alone (audience `muster-admitter`) and for ten minutes: an API server takes it for nobody.

Why not the kubeconfig's own token: it is made for the API server, and who shows it to another service gives that service
everything that the user may.
"""

import contextlib
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from muster.cli.noanswer import NoAnswer

AUDIENCE = "muster-admitter"
TOKEN_SECONDS = 600
TOKEN_PORT = 7443
"""Where the admitter takes tokens (daemonset/base)."""
KUBECTL_SECONDS = 20.0
UNDER_US = '"$@" & it=$!; exec >&- 2>&-; cat >/dev/null; kill "$it"'
"""For a shell: run a program until our standard input ends."""
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ->")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    address: str
    ca: bytes
    token: str


@contextlib.contextmanager
def opened(account: str, namespace: str) -> Iterator[Door]:
    """Open it for an account, namespace/name; NoAnswer says what is missing."""
    program = shutil.which("kubectl")
    if program is None:
        raise NoAnswer("kubectl is not in the PATH")
    inside = (program, "--namespace", namespace)
    holder = _json(*inside, "get", "lease", "muster-admitter").get("spec", {}).get("holderIdentity", "")
    pod = str(holder).partition("_")[0]
    if not pod:
        raise NoAnswer(f"the Lease {namespace}/muster-admitter names no leader")
    ca = str((_json(*inside, "get", "configmap", "muster-ca").get("data") or {}).get("ca.crt", ""))
    if not ca:
        raise NoAnswer(f"the ConfigMap {namespace}/muster-ca has no ca.crt")
    owner, _, name = account.partition("/")
    lifetime = f"--duration={TOKEN_SECONDS}s"
    token = _run(program, "--namespace", owner, "create", "token", name, f"--audience={AUDIENCE}", lifetime).strip()
    with _forwarded(*inside, "port-forward", f"pod/{pod}", f":{TOKEN_PORT}") as port:
        yield Door(address=f"127.0.0.1:{port}", ca=ca.encode(), token=token)


@contextlib.contextmanager
def _forwarded(*command: str) -> Iterator[int]:
    with subprocess.Popen(  # noqa: S603 -- the user's own kubectl, with words of ours
        ["/bin/sh", "-c", UNDER_US, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            match = _FORWARDING.search(said)
            if match is None:
                raise NoAnswer(f"kubectl port-forward: {said.strip() or 'ended without a word'}")
            yield int(match[1])
        finally:
            process.stdin.close()
            process.stdout.close()


def _json(*command: str) -> dict[str, Any]:
    try:
        found = json.loads(_run(*command, "--output=json"))
    except ValueError as error:
        raise NoAnswer(f"kubectl answered with something else: {error}") from error
    if not isinstance(found, dict):
        raise NoAnswer("kubectl answered with something else")
    return found


def _run(*command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own kubectl, with words of ours
            command, check=False, text=True, capture_output=True, timeout=KUBECTL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(f"kubectl: {error}") from error
    if done.returncode != 0:
        raise NoAnswer((done.stderr.strip().splitlines() or ["kubectl failed"])[-1])
    return done.stdout
