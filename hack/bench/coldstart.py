"""A fleet that comes back after its admitter was killed, with service-account tokens on a real API server: half of bench-feed.

In: how many nodes. Out: `fresh99_s`, from SIGKILL until the new admitter has a fresh report of 99 % of the nodes, and how many
TokenReviews the API server was asked meanwhile, by its own counters; then the same for streams that all break while the
admitter goes on, which remembers whom a token names.

Every node has a Node object and a token of its own, of the agents' service account, bound to that object (TokenRequest).
The API server, the admitter and what plays the nodes (tokenload.py) share this machine's cores. Budget: design.md section 7.
"""

import asyncio
import collections
import math
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from lightkube.models import authentication_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.publish import metrics
from admitter.sources import reviews
from hack.bench import apicost, child, controlplane, feedhub, running
from hack.bench.controlplane import SYSTEM, Stage
from hack.cluster import versions
from hack.fakenode import fleet

ACCOUNT = "muster-agent"
SHARE = 0.99
AT_ONCE = 16
GIVE_UP_SECONDS = 300.0
_LOOK_SECONDS = 0.5
"""Each look at the metrics costs the admitter some milliseconds of the time that is measured."""
_EXTRA = {"kube-controller-manager": ["--controllers=*,-node-lifecycle-controller"]}
"""Nobody renews the Leases of these Nodes; that their taints are written and watched is no part of a restart."""
_LISTEN = {"token-listen": "tokens", "metrics-address": "metrics"}
_NODES = re.compile(r'^muster_admitter_nodes\{verdict="([^"]+)"\} (\S+)$', re.MULTILINE)


def fresh(page: str) -> int:
    """Return of how many nodes an admitter has a fresh report.

    >>> fresh('muster_admitter_nodes{verdict="OK"} 7.0\\nmuster_admitter_nodes{verdict="STALE"} 2.0')
    7
    """
    return sum(int(float(value)) for verdict, value in _NODES.findall(page) if verdict != metrics.STALE)


def measure(nodes: int) -> dict[str, Any]:
    """Run it once, on a cluster of its own."""
    feedhub.allow_files()  # The admitter inherits it.
    ports = {name: fleet.free_port() for name in ("tokens", "metrics")}
    flags = {f"--{name}": f"127.0.0.1:{ports[port]}" for name, port in _LISTEN.items()}
    facts = running.machine()
    with (
        running.scratch("muster-bench-") as folder,
        controlplane.stage(folder, nodes=0, flags=flags, feeds=False, extra=_EXTRA) as stage,
    ):
        tokens = asyncio.run(_tokens(stage, nodes))
        path = folder / "tokens"
        path.write_text("".join(f"{node} {token}\n" for node, token in tokens.items()))
        load = child.Child("hack.bench.tokenload", folder / "pki" / "ca.pem", ports["tokens"], path)
        try:
            figures = _Trial(stage, load, ports["metrics"], nodes).run()
        finally:
            load.end()
        line = stage.cluster.line
    return {**facts, "kubernetes": versions.LINES[line].kubernetes, "nodes": nodes, **figures}


async def _tokens(stage: Stage, nodes: int) -> dict[str, str]:
    """Return a token for each of so many new nodes."""
    client = controlplane.client(stage.cluster)
    await client.create(core.ServiceAccount(metadata=meta_v1.ObjectMeta(name=ACCOUNT, namespace=SYSTEM)))
    slots = asyncio.Semaphore(AT_ONCE)
    print(f"{nodes} nodes and their tokens", file=sys.stderr)

    async def issue(name: str) -> str:
        async with slots:
            node = await client.create(core.Node(metadata=meta_v1.ObjectMeta(name=name)))
            assert node.metadata is not None
            bound = authentication_v1.BoundObjectReference(
                apiVersion="v1", kind="Node", name=name, uid=node.metadata.uid
            )
            spec = authentication_v1.TokenRequestSpec(
                audiences=[reviews.AUDIENCE], expirationSeconds=7200, boundObjectRef=bound
            )
            asked = core.ServiceAccountToken(spec=spec, metadata=meta_v1.ObjectMeta(namespace=SYSTEM))
            answer: Any = await client.create(asked, ACCOUNT, namespace=SYSTEM)
            return str(answer.status.token)

    names = [f"n{index}" for index in range(nodes)]
    try:
        return dict(zip(names, await asyncio.gather(*map(issue, names)), strict=True))
    finally:
        await client.close()


class _Trial:
    """One admitter, one fleet, and what is counted."""

    def __init__(self, stage: Stage, load: child.Child, metrics_port: int, nodes: int) -> None:
        self._stage, self._load, self._nodes = stage, load, nodes
        (self._admitter,) = stage.admitters.values()
        self._metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"

    def run(self) -> dict[str, Any]:
        """Let the fleet connect, kill the admitter, and then break all streams at once."""
        figures: dict[str, Any] = {}
        began = time.monotonic()
        self._until(self._fresh, self._nodes)
        figures["connect_s"] = round(time.monotonic() - began, 1)
        before, dials = self._look()
        began = time.monotonic()
        self._admitter.end(signal.SIGKILL)
        self._admitter.start()
        figures["fresh99_s"] = self._until(self._fresh, math.ceil(SHARE * self._nodes), began)
        figures["fresh_s"] = self._until(self._fresh, self._nodes, began)
        figures |= self._since(before, dials)
        before, dials = self._look()
        began = time.monotonic()
        self._load.ask("again")
        again: dict[str, Any] = {"welcomed99_s": self._until(self._welcomed, math.ceil(SHARE * self._nodes), began)}
        figures["again"] = again | self._since(before, dials)
        return figures

    def _look(self) -> tuple[apicost.Cost, dict[str, Any]]:
        return apicost.look(self._stage.cluster), self._load.ask("")

    def _since(self, before: apicost.Cost, load: dict[str, Any]) -> dict[str, Any]:
        cost, after = apicost.look(self._stage.cluster).since(before), self._load.ask("")
        ended = collections.Counter(after["ended"]) - collections.Counter(load["ended"])
        return {
            "token_reviews": cost.of("tokenreviews").get("POST", 0),
            "dials": after["dials"] - load["dials"],
            "late": ended["late"],
        }

    def _until(self, count: Callable[[], int], wanted: int, began: float = 0.0) -> float:
        """Return after how many seconds since `began` so many are there; SystemExit if they never are."""
        end = time.monotonic() + GIVE_UP_SECONDS
        while (found := count()) < wanted:
            if time.monotonic() > end:
                raise SystemExit(f"{found} of {wanted} nodes after {GIVE_UP_SECONDS:g} s: {self._load.ask('')}")
            self._admitter.check()
            time.sleep(_LOOK_SECONDS)
        return round(time.monotonic() - began, 1)

    def _fresh(self) -> int:
        try:
            with urllib.request.urlopen(self._metrics_url, timeout=60) as answer:
                return fresh(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            return 0

    def _welcomed(self) -> int:
        return int(self._load.ask("")["welcomed"])
