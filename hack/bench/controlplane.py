"""A control plane with fake nodes, admitters as processes, and agents for all nodes: what the cluster's benchmarks run on.

In: a folder, how many nodes and admitters. Out: `Stage`: the cluster, the admitters by name, with the means to kill and start
each, and its decision log.

Invariant: on any way out everything has ended before the block is left.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx2
import lightkube
from lightkube.config import kubeconfig
from lightkube.core import exceptions
from lightkube.models import meta_v1
from lightkube.resources import core_v1 as core

from hack import pki
from hack.bench import child
from hack.cluster import grants, run, versions
from hack.fakenode import fleet

NAMESPACE, SYSTEM = "bench", "muster-system"
NOTHING: Mapping[str, Sequence[str]] = {}
_PROGRAM = pathlib.Path(sys.executable).parent / "muster-admitter"


class Admitter:
    """One admitter, that can be killed and started at the same address."""

    def __init__(self, folder: pathlib.Path, name: str, flags: Mapping[str, str]) -> None:
        self._folder, self.name = folder, name
        self.port = fleet.free_port()
        self._flags = {
            "--name": name,
            "--listen": f"127.0.0.1:{self.port}",
            "--metrics-address": "127.0.0.1:0",
            "--decision-log": str(self.decisions),
            **flags,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def decisions(self) -> pathlib.Path:
        return self._folder / f"{self.name}.decisions.jsonl"

    @property
    def log(self) -> pathlib.Path:
        return self._folder / f"{self.name}.log"

    def start(self) -> None:
        with self.log.open("ab") as log:
            words = [word for flag in self._flags.items() for word in flag]
            self._process = subprocess.Popen([_PROGRAM, "run", *words], stdout=log, stderr=log, env={**os.environ})

    def end(self, number: int = signal.SIGTERM) -> None:
        """Signal it and wait until it is gone."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def check(self) -> None:
        """SystemExit if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise SystemExit(f"{self.name} ended with {self._process.returncode}: {self.log.read_text()[-2000:]}")


class Stage:
    """What runs."""

    def __init__(self, folder: pathlib.Path, cluster: run.Cluster, admitters: Sequence[Admitter]) -> None:
        self.folder, self.cluster = folder, cluster
        self.admitters = {each.name: each for each in admitters}

    def decisions(self) -> list[dict[str, Any]]:
        """Return all entries of all decision logs, in the order of their stamps."""
        found: list[dict[str, Any]] = []
        for each in self.admitters.values():
            if each.decisions.exists():
                # The last line of one that was killed may be cut.
                lines = each.decisions.read_text(errors="replace").splitlines()
                found += [entry for line in lines if (entry := _entry(line)) is not None]
        return sorted(found, key=lambda entry: str(entry["at"]))


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return entry


@contextlib.contextmanager
def stage(
    folder: pathlib.Path,
    *,
    nodes: int,
    admitters: int = 1,
    flags: Mapping[str, str] | None = None,
    feeds: bool = True,
    extra: Mapping[str, Sequence[str]] = NOTHING,
) -> Iterator[Stage]:
    """Run a cluster with admitters and, where `feeds`, agents, for as long as the block runs."""
    cluster = run.start(folder / "cluster", versions.line_name(), nodes=nodes, extra=extra)
    with contextlib.ExitStack() as stack:
        stack.callback(run.stop, cluster, keep=True)
        authority = pki.create(folder / "pki")
        files = authority.issue_admitter()
        furnish(cluster)
        given = {
            "--kubeconfig": str(cluster.kubeconfig),
            "--gates": "true",
            "--lease-namespace": SYSTEM,
            "--tls-ca": str(files.ca),
            "--tls-certificate": str(files.certificate),
            "--tls-key": str(files.key),
            # What is measured is admission: conditions on Nodes are another benchmark's.
            "--node-conditions": "false",
            # There was no term before the first one.
            "--new-term-grace-seconds": "0",
            **(flags or {}),
        }
        made = [Admitter(folder, f"admitter-{index}", given) for index in range(admitters)]
        for each in made:
            stack.callback(each.end)
            each.start()
        if feeds:
            for index in range(nodes):
                authority.issue_node(f"fake-{index:04d}")
            ports = [each.port for each in made]
            agents = child.Child("hack.bench.kubefeed", folder / "pki", cluster.kubeconfig, *ports)
            stack.callback(agents.end)
            agents.hear()
        yield Stage(folder, cluster, made)


def client(cluster: run.Cluster) -> lightkube.AsyncClient:
    """Return the administrator's client, patient with a machine that has more work than cores."""
    config = kubeconfig.KubeConfig.from_file(cluster.kubeconfig)
    return lightkube.AsyncClient(config=config, timeout=httpx2.Timeout(grants.ANSWER_SECONDS), trust_env=False)


def furnish(cluster: run.Cluster) -> None:
    """Make the namespaces, and wait until pods can be made in ours."""
    admin = grants.client(cluster.kubeconfig)
    for name in (NAMESPACE, SYSTEM):
        admin.create(core.Namespace(metadata=meta_v1.ObjectMeta(name=name)))
    for _ in range(300):
        with contextlib.suppress(exceptions.ApiError):
            admin.get(core.ServiceAccount, "default", namespace=NAMESPACE)
            break
        time.sleep(0.1)
    admin.close()
