"""Read pull secrets of waiting pods, those that a RoleBinding lets us read.

In: names of secrets by namespace, as pods name them. Out: by namespace and registry, what a secret holds, and its version.

Invariants: only secrets that a waiting pod names are asked for, one by one, never listed. What is read lives in memory for
`SECONDS` at most beyond the last pod that names it, and is never logged. One that may not be read is as good as none. What
pods of one namespace name pushes nothing of another's out.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from lightkube.resources import core_v1

from admitter.core import imagename, turns
from admitter.core.readiness import Secrets
from admitter.model.content import Credential, PullSecret
from admitter.sources import apiclient

_LOG = structlog.get_logger(__name__)

SECONDS = 300.0
"""After so long a secret is read anew, or tried again."""
MAX_SECRETS = 200
MAX_EACH = 20
"""Of one namespace: its service accounts name one or two, and a pod chooses what it names."""
_KEY = ".dockerconfigjson"
_DOCKER_HUB = frozenset({"index.docker.io", "registry-1.docker.io"})


class PullSecrets:
    """Belongs to one event loop."""

    def __init__(self, client: Any, monotonic: Callable[[], float]) -> None:
        self._client, self._monotonic = client, monotonic
        self._known: dict[tuple[str, str], tuple[Mapping[str, PullSecret], float]] = {}
        """Namespace and name -> by registry, and when it was read."""
        self._wanted: frozenset[tuple[str, str]] = frozenset()
        self._news = asyncio.Event()

    @property
    def read(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of those that were looked up: what they hold, or that they may not be read, is known."""
        return frozenset(self._known)

    def want(self, wanted: Mapping[str, frozenset[str]]) -> Secrets:
        """Return what is known of the secrets that are wanted now, and have the others read."""
        named = sorted((namespace, name) for namespace, names in wanted.items() for name in names)
        self._wanted = frozenset(turns.chosen(named, most=MAX_SECRETS, most_each=MAX_EACH))
        self._known = {key: found for key, found in self._known.items() if key in self._wanted}
        if self._due():
            self._news.set()
        found: dict[tuple[str, str], PullSecret] = {}
        for key in named:
            for host, secret in self._known.get(key, ({}, 0.0))[0].items():
                found.setdefault((key[0], host), secret)
        return found

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            for key in self._due():
                self._known[key] = (await self._read(*key), self._monotonic())

    def _due(self) -> list[tuple[str, str]]:
        now = self._monotonic()
        return sorted(key for key in self._wanted if key not in self._known or now - self._known[key][1] > SECONDS)

    async def _read(self, namespace: str, name: str) -> Mapping[str, PullSecret]:
        try:
            secret = await self._client.get(core_v1.Secret, name, namespace=namespace)
        except apiclient.Failed as error:
            # The text of an error names the object, never its content.
            _LOG.info("a pull secret is not used", namespace=namespace, name=name, why=type(error).__name__)
            return {}
        version = f"{secret.metadata.uid}/{secret.metadata.resourceVersion}"
        found = credentials((secret.data or {}).get(_KEY, ""))
        return {host: PullSecret(version=version, credential=credential) for host, credential in found.items()}


def credentials(encoded: str) -> Mapping[str, Credential]:
    """Return by registry what a docker configuration in base64 holds; nothing where it makes no sense."""
    try:
        auths = json.loads(base64.b64decode(encoded, validate=True))["auths"]
        return {_host(server): found for server, entry in auths.items() if (found := _credential(entry)) is not None}
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _credential(entry: Mapping[str, Any]) -> Credential | None:
    username, password = entry.get("username"), entry.get("password")
    if not username and isinstance(entry.get("auth"), str):
        username, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    if not isinstance(username, str) or not isinstance(password, str) or not username:
        return None
    return Credential(username=username, password=password)


def _host(server: str) -> str:
    """Return the registry that an entry is for.

    >>> _host("https://index.docker.io/v1/"), _host("registry:5000")
    ('docker.io', 'registry:5000')
    """
    host = imagename.host(server.partition("://")[2] or server)
    return "docker.io" if host in _DOCKER_HUB else host
