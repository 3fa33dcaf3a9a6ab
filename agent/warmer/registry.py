"""Ask registries, over HTTP, as little as there is to know: what a tag is now, and the bytes of a blob from an offset.

In: a Reference, the runtime's hosts, perhaps a user and password. Out: descriptors and bytes whose digest was checked;
RegistryFailed with a Reason and what the registry asks for in Retry-After.

Invariants: a password goes to the registry itself, or to a token server that it names over HTTPS; never to a mirror, to
where a blob is redirected to, or into a log. Each request has a socket timeout, so a stalled connection ends as Stalled.
A blob whose first place serves wrong bytes is asked for at the next.

Why an own client: containerd limits no bandwidth and ignores Retry-After (images.md sections 6.4 and 11).

Everything here blocks: fetch.py and resolve.py call it in threads.
"""

import base64
import contextlib
import dataclasses
import hashlib
import http.client
import json
import pathlib
import re
import socket
import ssl
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from agent.core import warmfailure, warmmanifest
from agent.model.warm import Descriptor, Reason, Reference
from agent.warmer import tokens
from agent.warmer.hosts import Endpoint, endpoints

Credentials = tokens.Credentials

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_MOST_REDIRECTS = 5
_MOST_OF_A_TOKEN = 64 * 1024
"""Bytes of a token server's answer: no request could hold a longer token."""
_MOST_RETRY_AFTER = 3600.0


class RegistryFailed(Exception):
    """A registry said no, or nothing. The text is bounded and holds no secret."""

    def __init__(self, reason: Reason, detail: str, retry_after: float = 0.0) -> None:
        self.reason, self.detail, self.retry_after = reason, warmfailure.shown(detail), retry_after
        super().__init__(f"{reason.value}: {self.detail}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    socket: socket.socket

    def close(self) -> None:
        """Close both: the connection lets go of a response that ends with it."""
        self.response.close()
        self.connection.close()


class Blob:
    """The rest of a blob, as it comes."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; nothing at the end."""
        try:
            return self._answer.response.read(size)
        except TimeoutError as error:
            raise RegistryFailed(Reason.STALLED, "no byte came before the stall timer") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, f"the connection was cut: {error}") from error

    def close(self) -> None:
        """Give the connection up, also from another thread while `read` waits."""
        with contextlib.suppress(OSError):
            self._answer.socket.shutdown(socket.SHUT_RDWR)
        self._answer.close()


class Registry:
    """All registries of a node."""

    def __init__(
        self, hosts_folder: pathlib.Path, *, timeout_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._timeout = hosts_folder, timeout_seconds
        self._tokens = tokens.Tokens(monotonic)
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_closed = False

    def branch(self) -> "Registry":
        """Return one that is closed by itself, with the same tokens."""
        made = Registry(self._folder, timeout_seconds=self._timeout)
        made._tokens = self._tokens
        return made

    def close(self) -> None:
        """Ask nothing more, and end what is being asked, from whatever thread: it fails."""
        with self._lock:
            self._is_closed = True
            for each in tuple(self._sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def resolve(self, reference: Reference, credentials: Credentials | None) -> Descriptor:
        """Return what a reference is now."""
        name = reference.digest or reference.tag
        answer = self._ask("HEAD", reference, f"manifests/{name}", credentials)
        with contextlib.closing(answer):
            response = answer.response
            digest = response.getheader("Docker-Content-Digest", reference.digest)
            if not _DIGEST.fullmatch(digest) or reference.digest not in {"", digest}:
                digest = ""  # A word that proves nothing, perhaps a mirror's.
            length, kind = response.getheader("Content-Length", ""), response.getheader("Content-Type", "")
            size = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else 0
        if not digest or not size:  # Optional in the specification: read and count for ourselves.
            data = self.read(reference, name, credentials, is_manifest=True)
            digest, size = f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)
        return Descriptor(digest=digest, size=size, kind=kind.partition(";")[0][: warmmanifest.MAX_KIND])

    def read(self, reference: Reference, name: str, credentials: Credentials | None, *, is_manifest: bool) -> bytes:
        """Return a small blob or a manifest, its digest checked where `name` is one."""
        path = f"{'manifests' if is_manifest else 'blobs'}/{name}"
        failure = RegistryFailed(Reason.NOT_FOUND, "there is nowhere to ask")
        for endpoint in endpoints(self._folder, reference.host):
            try:
                answer = self._ask_at(endpoint, "GET", reference, path, credentials)
                with contextlib.closing(Blob(answer)) as blob:
                    data = blob.read(warmmanifest.MAX_BYTES + 1)
            except RegistryFailed as error:
                failure = error
                continue
            if len(data) > warmmanifest.MAX_BYTES:
                failure = RegistryFailed(Reason.BAD_MANIFEST, f"more than {warmmanifest.MAX_BYTES} bytes")
            elif name.startswith("sha256:") and f"sha256:{hashlib.sha256(data).hexdigest()}" != name:
                failure = RegistryFailed(Reason.CORRUPT_BLOB, f"{endpoint.host} serves other bytes for {name}")
            else:
                return data
        raise failure

    def open(
        self, reference: Reference, digest: str, offset: int, credentials: Credentials | None, *, attempt: int = 0
    ) -> Blob:
        """Open a blob from an offset; a later attempt begins at another place, where there is one."""
        places = endpoints(self._folder, reference.host)
        turned = (*places[attempt % len(places) :], *places[: attempt % len(places)])
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        answer = self._ask("GET", reference, f"blobs/{digest}", credentials, places=turned, headers=headers)
        blob = Blob(answer)
        if offset and answer.response.status != http.HTTPStatus.PARTIAL_CONTENT:
            left = offset  # It does not know ranges: what we have comes again, unwanted.
            while left and (data := blob.read(min(left, 1 << 20))):
                left -= len(data)
        return blob

    def _ask(
        self,
        method: str,
        reference: Reference,
        path: str,
        credentials: Credentials | None,
        *,
        places: tuple[Endpoint, ...] = (),
        headers: Mapping[str, str] | None = None,
    ) -> _Answer:
        """Ask one place after the other; the last one's failure is what counts: it is the registry itself."""
        failure = RegistryFailed(Reason.NOT_FOUND, "there is nowhere to ask")
        for endpoint in places or endpoints(self._folder, reference.host):
            try:
                return self._ask_at(endpoint, method, reference, path, credentials, headers or {})
            except RegistryFailed as error:
                failure = error
        raise failure

    def _ask_at(
        self,
        endpoint: Endpoint,
        method: str,
        reference: Reference,
        path: str,
        credentials: Credentials | None,
        headers: Mapping[str, str] | None = None,
    ) -> _Answer:
        url = f"{endpoint.scheme}://{endpoint.host}{endpoint.path}/{reference.repository}/{path}"
        if endpoint.is_mirror:
            url, credentials = f"{url}?ns={reference.host}", None
        asked = {"Accept": ", ".join(warmmanifest.ACCEPTED) if "manifests/" in path else "*/*", **(headers or {})}
        scope = f"repository:{reference.repository}:pull"
        known = _bearer(self._tokens.known(endpoint.host, scope, credentials))
        answer = self._send(endpoint, method, url, {**asked, **known})
        if answer.response.status == http.HTTPStatus.UNAUTHORIZED:
            challenge = answer.response.getheader("WWW-Authenticate", "")
            answer.close()
            proof = self._proof(endpoint, challenge, scope, credentials)
            if not proof:
                raise RegistryFailed(Reason.UNAUTHORIZED, f"{endpoint.host} wants credentials and there are none")
            answer = self._send(endpoint, method, url, {**asked, **proof})
        if answer.response.status >= 300:
            raise self._refusal(endpoint, answer)
        return answer

    def _send(self, endpoint: Endpoint, method: str, url: str, headers: Mapping[str, str]) -> _Answer:
        for _ in range(_MOST_REDIRECTS):
            parts, connection = self._connection(endpoint, url)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            try:
                connection.request(method, target, headers={"User-Agent": "muster-warmer", **headers})
                self._mind(connection.sock)
                answer = _Answer(socket=connection.sock, response=connection.getresponse(), connection=connection)
            except TimeoutError as error:
                connection.close()
                raise RegistryFailed(Reason.STALLED, f"{parts.netloc} did not answer in time") from error
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, f"{parts.netloc}: {error}") from error
            except ValueError:
                connection.close()
                # Its text would hold the token.
                detail = f"{endpoint.host} gave a token or an address that no request can hold"
                raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, detail) from None
            if answer.response.status not in {301, 302, 303, 307, 308}:
                return answer
            answer.close()
            url = _joined(endpoint, url, answer.response.getheader("Location", ""))
            # Where a blob really is needs no proof of who asks, and must not get it.
            headers = {name: value for name, value in headers.items() if name != "Authorization"}
        raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, f"{endpoint.host} redirects for ever")

    def _mind(self, opened: socket.socket) -> None:
        with self._lock:
            if self._is_closed:
                raise ConnectionAbortedError("it was given up")
            self._sockets.add(opened)

    def _connection(self, endpoint: Endpoint, url: str) -> tuple[urllib.parse.SplitResult, http.client.HTTPConnection]:
        try:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("neither http nor https, or no host")
            if parts.scheme == "http":
                return parts, http.client.HTTPConnection(parts.netloc, timeout=self._timeout)
            context = self._context(endpoint)
            return parts, http.client.HTTPSConnection(parts.netloc, timeout=self._timeout, context=context)
        except (ValueError, http.client.InvalidURL) as error:
            raise RegistryFailed(
                Reason.REGISTRY_UNREACHABLE, f"{endpoint.host} leads to no address: {error}"
            ) from error

    @staticmethod
    def _context(endpoint: Endpoint) -> ssl.SSLContext:
        context = ssl.create_default_context()
        try:
            for file in endpoint.ca:
                context.load_verify_locations(file)
        except (OSError, ssl.SSLError) as error:
            raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, f"{file}: {error}") from error
        if endpoint.skip_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _proof(self, endpoint: Endpoint, challenge: str, scope: str, credentials: Credentials | None) -> dict[str, str]:
        """Return the header that answers a challenge; empty: there is nothing to answer it with."""
        kind, _, rest = challenge.partition(" ")
        basic = _basic(credentials) if credentials is not None else {}
        if kind.lower() != "bearer":
            return basic
        said = dict(_PARAMETER.findall(rest))
        try:
            realm = urllib.parse.urlsplit(said.get("realm", ""))
        except ValueError as error:
            raise RegistryFailed(Reason.UNAUTHORIZED, f"{endpoint.host} names no token server: {error}") from error
        if realm.scheme != "https" and endpoint.scheme == "https":
            raise RegistryFailed(Reason.UNAUTHORIZED, f"{endpoint.host} sends its users to a token server without TLS")
        query = urllib.parse.urlencode({"service": said.get("service", ""), "scope": said.get("scope", scope)})
        answer = self._send(endpoint, "GET", f"{realm.geturl()}?{query}", basic)
        if answer.response.status >= 300:
            raise self._refusal(endpoint, answer)
        with contextlib.closing(Blob(answer)) as body:
            content = _json(body.read(_MOST_OF_A_TOKEN))
        token = str(content.get("token") or content.get("access_token") or "")
        if token:
            self._tokens.keep(endpoint.host, scope, credentials, token, content.get("expires_in"))
        return _bearer(token)

    @staticmethod
    def _refusal(endpoint: Endpoint, answer: _Answer) -> RegistryFailed:
        status = answer.response.status
        after = answer.response.getheader("Retry-After", "")
        answer.close()
        seconds = min(float(after), _MOST_RETRY_AFTER) if re.fullmatch(r"\d{1,6}", after) else 0.0
        return RegistryFailed(warmfailure.of_status(status), f"{endpoint.host} answers {status}", seconds)


def _joined(endpoint: Endpoint, url: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(url, location)
    except ValueError as error:
        raise RegistryFailed(Reason.REGISTRY_UNREACHABLE, f"{endpoint.host} leads to no address: {error}") from error


def _basic(credentials: Credentials) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(":".join(credentials).encode()).decode()}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _json(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
