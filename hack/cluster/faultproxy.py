"""An API server that is ill on order: a reverse proxy with faults in front of the real one, on loopback.

In: a cluster's kubeconfig; `inflict` and `heal`, which a test calls while it runs. Out: a kubeconfig that leads here, the real
server's answers or what a fault makes of them, and how often what was asked.

Invariants: without faults every byte goes through as it came, and streams stay streams. A fault that ends connections ends those
that stand already; one that is silent makes them silent too. Whoever comes through here is, for the API server, the owner of the
kubeconfig.

Why plain HTTP on this side: what is tried is the client, not its TLS; and what is read here can be counted.

Not here: registries (hack/images/proxy.py), whose answers have a length and never go on for ever.
"""

import asyncio
import collections
import dataclasses
import json
import pathlib
import re
import ssl
import urllib.parse
from collections.abc import Mapping

import yaml  # lightkube's own

_LIMIT = 1 << 20
_OBJECT = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/(?=[^/]+))?([^/]+)(?:/[^/]+)?(/[^/]+)?$")
_EXPIRED = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to requests that fit; one thing, and a delay before it."""

    method: str = ""
    """Empty: any."""
    path: str = ""
    """Regular expression, searched in the path without its query."""
    is_watch: bool | None = None
    """None: watches and others."""
    delay_seconds: float = 0.0
    status: int = 0
    """Answer this instead of asking."""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_expired: bool = False
    """A watch begins well, and its first event says 410."""
    is_cut: bool = False
    """Close instead of asking."""
    is_lost: bool = False
    """Ask, and close instead of passing the answer on."""
    is_silent: bool = False
    """Never answer; what stands already hears nothing more, and is closed when this is healed."""

    @property
    def ends_streams(self) -> bool:
        """Return whether connections that stand already end with it."""
        return bool(self.status or self.is_expired or self.is_cut)

    def fits(self, request: "Request") -> bool:
        """Return whether it happens to a request."""
        is_kind = self.is_watch is None or self.is_watch == request.is_watch
        return is_kind and self.method in ("", request.method) and re.search(self.path, request.path) is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, as it came."""

    method: str
    target: str
    data: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.target.partition("?")[2].split("&")

    @property
    def kind(self) -> str:
        """Return verb and resource, without names.

        >>> Request(method="PATCH", target="/api/v1/namespaces/a/pods/b/status?x=y", data=b"").kind
        'PATCH pods/status'
        >>> Request(method="GET", target="/apis/batch/v1/jobs?watch=true", data=b"").kind
        'WATCH jobs'
        """
        match = _OBJECT.match(self.path)
        name = f"{match[1]}{match[2] or ''}" if match else self.path
        return f"{'WATCH' if self.is_watch else self.method} {name}"


class FaultProxy:
    """Serves within `async with`. Belongs to one event loop."""

    def __init__(self, kubeconfig: pathlib.Path, folder: pathlib.Path) -> None:
        """`folder` is where the kubeconfig that leads here is put."""
        form = yaml.safe_load(kubeconfig.read_text())
        cluster, user = form["clusters"][0]["cluster"], form["users"][0]["user"]
        address = urllib.parse.urlsplit(cluster["server"])
        assert address.hostname is not None
        assert address.port is not None
        self._upstream = address.hostname, address.port
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])
        self.kubeconfig = folder / "faulty.kubeconfig"
        self.asked: collections.Counter[str] = collections.Counter()
        """Requests that came here, by kind."""
        self._faults: list[Fault] = []
        self._healed = asyncio.Condition()
        self._standing: dict[asyncio.StreamWriter, Request | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    async def __aenter__(self) -> "FaultProxy":
        await self.open()
        url = f"http://127.0.0.1:{self._port}"
        form = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "faulty",
            "clusters": [{"name": "faulty", "cluster": {"server": url}}],
            "users": [{"name": "faulty", "user": {}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}],
        }
        self.kubeconfig.write_text(json.dumps(form))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self) -> None:
        """Listen, where it listened before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=_LIMIT)
        self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Have connections refused, and end those that stand."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._standing):
            writer.transport.abort()

    def inflict(self, fault: Fault) -> None:
        """Let a fault happen from now on; the newest that fits goes first."""
        self._faults.insert(0, fault)
        if fault.ends_streams:
            for writer, request in list(self._standing.items()):
                if request is not None and fault.fits(request):
                    writer.transport.abort()

    async def heal(self, *faults: Fault) -> None:
        """End these faults; none: all of them."""
        self._faults = [fault for fault in self._faults if faults and fault not in faults]
        async with self._healed:
            self._healed.notify_all()

    def _fault_of(self, request: Request) -> Fault | None:
        return next((fault for fault in self._faults if fault.fits(request)), None)

    # -- one connection

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._standing[writer] = None
        try:
            while (request := await _request(reader)) is not None:
                self._standing[writer] = request
                self.asked[request.kind] += 1
                if not await self._suffers(request, writer):
                    upstream = upstream or await asyncio.open_connection(
                        *self._upstream, ssl=self._context, limit=_LIMIT
                    )
                    await self._pass(request, upstream, writer)
                self._standing[writer] = None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, _Ended):
            # Either side is gone, or a fault has ended it.
            pass
        finally:
            self._standing.pop(writer, None)
            writer.transport.abort()
            if upstream is not None:
                upstream[1].transport.abort()

    async def _suffers(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Do what the fault of a request does; False: it is to be passed on."""
        fault = self._fault_of(request)
        if fault is None:
            return False
        await asyncio.sleep(fault.delay_seconds)
        if fault.is_silent:
            await self._silence(request)
        if fault.is_cut:
            raise _Ended
        if fault.is_expired and request.is_watch:
            line = json.dumps({"type": "ERROR", "object": _EXPIRED}) + "\n"
            writer.write(_answer(200, {}, line.encode()))
        elif fault.status:
            form = {**_EXPIRED, "code": fault.status, "reason": "", "message": "made by the proxy"}
            writer.write(_answer(fault.status, fault.headers, json.dumps(form).encode()))
        else:
            return False
        await writer.drain()
        return True

    async def _silence(self, request: Request) -> None:
        """Say nothing until the fault is healed, then close."""
        async with self._healed:
            await self._healed.wait_for(lambda: not self._is_silent(request))
        raise _Ended

    def _is_silent(self, request: Request) -> bool:
        fault = self._fault_of(request)
        return fault is not None and fault.is_silent

    async def _pass(
        self,
        request: Request,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        writer: asyncio.StreamWriter,
    ) -> None:
        reader, sender = upstream
        sender.write(request.data)
        await sender.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        fields = _fields(head)
        fault = self._fault_of(request)
        if fault is not None and fault.is_lost:
            raise _Ended
        await self._send(request, writer, head)
        if "content-length" in fields:
            await self._send(request, writer, await reader.readexactly(int(fields["content-length"])))
        elif fields.get("transfer-encoding") == "chunked":
            size = -1
            while size:
                line = await reader.readuntil(b"\r\n")
                size = int(line.partition(b";")[0], 16)
                await self._send(request, writer, line + await reader.readexactly(size + 2))

    async def _send(self, request: Request, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._is_silent(request):
            await self._silence(request)
        writer.write(data)
        await writer.drain()


class _Ended(Exception):
    """The connection ends here."""


async def _request(reader: asyncio.StreamReader) -> Request | None:
    """Read one request whole; None: the client has hung up."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    body = await reader.readexactly(int(_fields(head).get("content-length", 0)))
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    return Request(method=method, target=target, data=head + body)


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    parts = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): text.strip() for name, _, text in parts}


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Fault", *(f"{name}: {text}" for name, text in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
