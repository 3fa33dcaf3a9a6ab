"""The connection to the API server: where it is, who we are, what we may wait for.

In: a kubeconfig file, or the pod's own service account. Out: clients, and one count of requests for all of them.

Invariants: no request waits longer than its deadline, but for a watch, which is silent for `SILENT_SECONDS` at most. A
connection that the network dropped without a word is noticed by TCP itself. One that is given up while it opens is closed.

Why a transport of our own: lightkube 1.0 has no argument for keepalive or counting, and takes a transport.

Not here: what is asked, and what a watch hears (events.py).
"""

import asyncio
import collections
import pathlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import lightkube
from lightkube.config import client_adapter, kubeconfig
from lightkube.core import exceptions

from muster import settings

REQUEST_SECONDS = 10.0
LIST_SECONDS = 60.0
"""For one page of a list: a busy API server reads 500 pods from etcd."""
SILENT_SECONDS = 90.0
"""A watch ends within a minute (events.py); what is silent for so long has lost its other end."""
REOPEN_SECONDS = 1.0
"""Between two openings of one watch: a server that closes at once must not be asked in a loop."""
NAMESPACE_FILE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
FIELD_MANAGER = "muster-admitter"
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    # What was sent and not acknowledged for so long: the other end is gone.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)

Failed = (httpx2.HTTPError, httpx2.InvalidURL, exceptions.ConfigError, OSError, ValueError)
"""What a request can raise: no answer, a refusal (ApiError), an answer that cannot be decoded."""


class Transport(httpx2.AsyncBaseTransport):
    """HTTP as the admitter needs it."""

    def __init__(
        self, context: ssl.SSLContext, requests: "collections.Counter[str]", on_open: Callable[[], None]
    ) -> None:
        self._wire = httpx2.AsyncHTTPTransport(verify=context, socket_options=_KEEPALIVE)
        self._requests = requests
        self._on_open = on_open
        self._opened_at = -REOPEN_SECONDS

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request."""
        is_watch = request.url.params.get("watch") == "true"
        self._requests["WATCH" if is_watch else request.method] += 1
        request.extensions = {**request.extensions, "trace": _Opening()}
        if not is_watch:
            return await self._wire.handle_async_request(request)
        await asyncio.sleep(max(0.0, self._opened_at + REOPEN_SECONDS - time.monotonic()))
        self._opened_at = time.monotonic()
        response = await self._wire.handle_async_request(request)
        if response.status_code == httpx2.codes.OK:
            self._on_open()
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wire.aclose()


class _Opening:
    """Closes the socket of a connection that is cancelled in its handshake: httpx2 2.16 closes it after other errors only."""

    def __init__(self) -> None:
        self._stream: Any = None

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event == "connection.start_tls.complete":
            self._stream = None
        elif event == "connection.start_tls.failed" and self._stream is not None:
            await self._stream.aclose()


class Api:
    """Makes clients for one API server."""

    def __init__(self, config: kubeconfig.SingleConfig) -> None:
        self._config = config
        self.requests: collections.Counter[str] = collections.Counter()
        """Requests by method since the start; `WATCH` counts openings."""

    @property
    def server(self) -> str:
        """Return the server's address, for people."""
        return str(self._config.cluster.server)

    def client(self, *, seconds: float = REQUEST_SECONDS) -> lightkube.AsyncClient:
        """Return a client with a connection pool of its own."""
        return lightkube.AsyncClient(
            config=self._config,
            timeout=httpx2.Timeout(seconds),
            field_manager=FIELD_MANAGER,
            # A proxy of the environment is for others: the API server is near.
            trust_env=False,
            transport=self._transport(),
        )

    def wire(self, on_open: Callable[[], None]) -> httpx2.AsyncClient:
        """Return a bare connection that is authenticated as the clients are; `on_open` is called for every watch that stands."""
        transport = self._transport(on_open)
        # Typed for a transport of either kind.
        parameters: Any = {"timeout": httpx2.Timeout(REQUEST_SECONDS), "trust_env": False, "transport": transport}
        return client_adapter.AsyncClient(self._config, client_adapter.ConnectionParams(**parameters))

    def _transport(self, on_open: Callable[[], None] = lambda: None) -> Transport:
        config = self._config
        assert config.user is not None
        context = client_adapter.verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
        return Transport(context, self.requests, on_open)


def from_kubeconfig(path: pathlib.Path) -> Api:
    """Return the API server that a kubeconfig's current context names; InvalidSettings if there is none."""
    try:
        config = kubeconfig.KubeConfig.from_file(path).get()
    except (*Failed, KeyError, TypeError, AttributeError) as error:
        raise settings.InvalidSettings([f"--kubeconfig: {path}: {error}"]) from error
    return _checked(config, f"--kubeconfig: {path}")


def from_service_account() -> Api:
    """Return the API server of the cluster that we run in; InvalidSettings if this is no pod."""
    try:
        config = kubeconfig.KubeConfig.from_service_account().get()
    except (*Failed, KeyError, TypeError, AttributeError) as error:
        raise settings.InvalidSettings([f"--in-cluster: this is no pod with a service account: {error}"]) from error
    return _checked(config, "--in-cluster")


def own_namespace(fallback: str) -> str:
    """Return the namespace of the pod that we run in."""
    try:
        return NAMESPACE_FILE.read_text().strip() or fallback
    except OSError:
        return fallback


def refusal(error: BaseException) -> int:
    """Return the HTTP status that an error carries; 0: there was no answer."""
    if isinstance(error, exceptions.ApiError):
        return error.status.code or 0
    if isinstance(error, httpx2.HTTPStatusError):
        return int(error.response.status_code)
    return 0


def _checked(config: kubeconfig.SingleConfig | None, flag: str) -> Api:
    if config is None or config.user is None:
        raise settings.InvalidSettings([f"{flag}: names no cluster and user"])
    try:
        client_adapter.verify_cluster(config.cluster, config.user, config.abs_file, trust_env=False)
    except (OSError, ValueError, exceptions.ConfigError) as error:
        raise settings.InvalidSettings([f"{flag}: its certificates cannot be used: {error}"]) from error
    return Api(config)
