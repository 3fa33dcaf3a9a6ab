"""The node's own registry credentials: from the kubelet's credential provider.

In: a program and the images it is for. Out: user and password for a reference, or None.

Invariants: nothing is kept on a disk or written to a log, and what is in memory is kept no longer than the provider says,
of at most MAX_KEPT images. A provider that fails, hangs or prints nonsense is no credential, and the reason is logged
without what it printed. It is asked about an image by one process at a time, and by MAX_PROCESSES in all.

The protocol is the kubelet's: CredentialProviderRequest on standard input, CredentialProviderResponse on standard output
(images.md section 8).
"""

import asyncio
import contextlib
import fnmatch
import json
import logging
import re
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from agent.model.warm import Reference
from agent.warmer.registry import Credentials

_log = logging.getLogger("muster.warmer")

PROVIDER_SECONDS = 30.0
MAX_BYTES = 1024 * 1024
"""Of an answer; one that is longer is no JSON by then."""
FAILED_SECONDS = 60.0
"""How long a provider that failed is not asked about that image again."""
MAX_KEPT = 512
MAX_PROCESSES = 8
"""Twice what pods' questions can take (questions.py): those that hang do not keep the node's own from being asked."""
_API = "credentialprovider.kubelet.k8s.io/v1"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MOST_SECONDS = 12 * 3600.0


class CredentialProvider:
    """One provider; without a program there are no credentials."""

    def __init__(
        self, argv: Sequence[str], images: Sequence[str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._argv, self._images, self._monotonic = argv, images, monotonic
        self._kept: dict[str, tuple[Credentials | None, float]] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._processes = asyncio.Semaphore(MAX_PROCESSES)

    async def credentials(self, reference: Reference) -> Credentials | None:
        """Return what the node has for an image."""
        image = f"{reference.host}/{reference.repository}"
        if not self._argv or not any(_matches(pattern, image) for pattern in self._images):
            return None
        # Whoever asks holds it; with the last of them it goes.
        lock = self._locks.setdefault(image, asyncio.Lock())
        async with lock:
            self._forget()
            if image in self._kept:
                return self._kept[image][0]
            async with self._processes:
                answer = await self._ask(str(reference))
            found = _choose(answer.get("auth"), image) if answer is not None else None
            seconds = _seconds(answer.get("cacheDuration")) if answer is not None else FAILED_SECONDS
            self._keep(image, found, seconds)
        return found

    def _keep(self, image: str, found: Credentials | None, seconds: float) -> None:
        if seconds <= 0:
            return
        self._kept[image] = (found, self._monotonic() + seconds)
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        # Nobody may ever ask again.
        asyncio.get_running_loop().call_later(seconds, self._forget)

    def _forget(self) -> None:
        """Drop what is kept for long enough."""
        now = self._monotonic()
        self._kept = {image: kept for image, kept in self._kept.items() if now < kept[1]}

    async def _ask(self, image: str) -> dict[str, Any] | None:
        """Return what the provider says of an image; None: it failed."""
        request = json.dumps({"apiVersion": _API, "kind": "CredentialProviderRequest", "image": image})
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            _log.warning("the credential provider does not start: %s", error.strerror)
            return None
        try:
            async with asyncio.timeout(PROVIDER_SECONDS):
                output = await _exchange(process, request.encode())
                if len(output) < MAX_BYTES:
                    await process.wait()
        except TimeoutError:
            _log.warning("the credential provider did not answer within %.0f s", PROVIDER_SECONDS)
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            _log.warning("the credential provider ends with status %d", process.returncode)
            return None
        try:
            content = json.loads(output)
        except (ValueError, RecursionError):
            _log.warning("the credential provider prints no JSON")
            return None
        return content if isinstance(content, dict) else None


async def _exchange(process: asyncio.subprocess.Process, request: bytes) -> bytes:
    """Give a program its input and return what it prints, as far as that is bounded."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):  # It may not read what it is asked.
        process.stdin.write(request)
        await process.stdin.drain()
        process.stdin.close()
    try:
        return await process.stdout.readexactly(MAX_BYTES)
    except asyncio.IncompleteReadError as error:
        return error.partial


def _choose(auth: Any, image: str) -> Credentials | None:
    """Return the entry with the longest pattern that fits."""
    fitting = sorted((key for key in auth if _matches(key, image)), key=len) if isinstance(auth, dict) else []
    entry = auth[fitting[-1]] if fitting else None
    if not isinstance(entry, dict) or not entry.get("username") or not entry.get("password"):
        return None
    return str(entry["username"]), str(entry["password"])


def _matches(pattern: str, image: str) -> bool:
    """Tell whether a kubelet's image pattern covers an image: globs in the host, a prefix of the path.

    >>> _matches("*.ecr.aws/team", "a.ecr.aws/team/app"), _matches("*.ecr.aws", "a.b.ecr.aws/x")
    (True, False)
    """
    host, _, path = pattern.partition("/")
    image_host, _, image_path = image.partition("/")
    parts, image_parts = host.split("."), image_host.split(".")
    is_host = len(parts) == len(image_parts) and all(map(fnmatch.fnmatchcase, image_parts, parts))
    return is_host and (not path or image_path == path or image_path.startswith(path.rstrip("/") + "/"))


def _seconds(text: Any) -> float:
    """Return a Go duration in seconds; 0 for none.

    >>> _seconds("1h30m"), _seconds("250ms"), _seconds(None)
    (5400.0, 0.25, 0.0)
    """
    found = _DURATION.findall(text) if isinstance(text, str) else []
    return min(_MOST_SECONDS, sum((float(count) * _UNITS[unit] for count, unit in found), 0.0))
