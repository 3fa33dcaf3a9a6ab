"""Agents that show a token and dial again like agents: the measuring half of the cold restart (coldstart.py).

`python -m hack.bench.tokenload CA PORT TOKENS`: TOKENS is a file of lines `NODE TOKEN`. For each line on stdin it prints one
of figures; `again` hangs up everywhere first. It ends when stdin closes.

Invariant: what the admitter sees is a fleet. All dial at the same time, each gives up a call that is not welcomed in time,
and waits longer after each failure, as agent/publish/feed.py does and with its numbers. One TLS context for all: nobody
shows a certificate, and no session is resumed.
"""

import collections
import json
import os
import pathlib
import random
import selectors
import socket
import ssl
import sys
import time
from typing import IO

from agent.publish import feed as agentfeed
from agent.publish import feed_session
from hack.bench import feedhub, feedload, h2stream
from muster import tls
from muster.model import pbform, protocol
from muster.pb.muster.v1 import feed_pb2

_PAUSE_SECONDS = 0.02


class Agent:
    """One node: idle until it dials, dialling until its handshake is done, then calling until it is welcomed."""

    def __init__(self, fleet: "Fleet", node: str, token: str) -> None:
        self._fleet, self._node, self._token = fleet, node, token
        self._socket: socket.socket | None = None
        self._stream: h2stream.Stream | None = None
        self._beat_seconds = 0.0
        """Of a welcomed agent; 0: it is not."""
        self._pause, self._patience = agentfeed.BACKOFF_SECONDS[0], feed_session.WELCOME_SECONDS[0]
        self._dialled_at, self._sequence = 0.0, 0
        self.act_at = 0.0
        """When it dials, gives up its call, or sends its next heartbeat."""

    @property
    def is_welcome(self) -> bool:
        return self._beat_seconds > 0

    def act(self, now: float) -> None:
        """Do what is due."""
        if self._socket is None:
            self._dial(now)
        elif not self.is_welcome:
            self._patience = min(self._patience * 2, feed_session.WELCOME_SECONDS[1])
            self.hang_up("late")
        else:
            assert self._stream is not None
            beat = feed_pb2.Heartbeat(sequence=self._sequence, plane_age_ms={"nvml": 4000, "pods": 1000})
            self._stream.send(feed_pb2.ConnectRequest(heartbeat=beat).SerializeToString())
            self.act_at = now + self._beat_seconds

    def ready(self) -> None:
        """Go on with what the connection waited for."""
        try:
            if self._stream is None:
                self._shake_hands()
            else:
                self._stream.receive()
                for message in self._stream.messages():
                    self._hear(feed_pb2.ConnectResponse.FromString(message))
        except (OSError, h2stream.Ended) as error:
            self.hang_up(type(error).__name__)

    def hang_up(self, why: str) -> None:
        """Close the connection, and dial again after the agent's pause."""
        if self._socket is not None:
            self._fleet.poll.unregister(self._socket)
            self._socket.close()
        now = time.monotonic()
        if self.is_welcome and now - self._dialled_at > agentfeed.SETTLED_SECONDS:
            self._pause, self._patience = agentfeed.BACKOFF_SECONDS[0], feed_session.WELCOME_SECONDS[0]
        self._fleet.ended[why] += 1
        self._socket, self._stream, self._beat_seconds = None, None, 0.0
        self.act_at = now + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, agentfeed.BACKOFF_SECONDS[1])

    def _dial(self, now: float) -> None:
        self._dialled_at, self.act_at = now, now + self._patience
        self._fleet.dials += 1
        self._socket = socket.socket()
        self._socket.settimeout(0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(("127.0.0.1", self._fleet.port))
        self._fleet.poll.register(self._socket, selectors.EVENT_WRITE, self)

    def _shake_hands(self) -> None:
        assert self._socket is not None
        if not isinstance(self._socket, ssl.SSLSocket):
            problem = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                raise OSError(problem, os.strerror(problem))
            self._fleet.poll.unregister(self._socket)
            self._socket = self._fleet.context.wrap_socket(
                self._socket, server_hostname=tls.ADMITTER_NAME, do_handshake_on_connect=False
            )
            self._fleet.poll.register(self._socket, selectors.EVENT_WRITE, self)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._fleet.poll.modify(self._socket, selectors.EVENT_READ, self)
            return
        except ssl.SSLWantWriteError:
            self._fleet.poll.modify(self._socket, selectors.EVENT_WRITE, self)
            return
        self._fleet.poll.modify(self._socket, selectors.EVENT_READ, self)
        self._stream = h2stream.Stream(self._socket, self._token)
        hello = feed_pb2.Hello(
            node=self._node, boot_id="boot", start_counter=1, agent_version="0.1.0", protocol=protocol.MINOR
        )
        self._stream.send(feed_pb2.ConnectRequest(hello=hello).SerializeToString())

    def _hear(self, answer: feed_pb2.ConnectResponse) -> None:
        kind = answer.WhichOneof("message")
        is_first = kind == "welcome" and not self.is_welcome
        if kind == "welcome":
            self._beat_seconds = answer.welcome.heartbeat_ms / 1000
        if is_first or kind == "resync":
            assert self._stream is not None
            self._sequence += 1
            self._stream.send(self._fleet.snapshot(self._node, self._sequence))
            # Agents were not started in the same moment, nor do their beats fall together.
            self.act_at = time.monotonic() + self._beat_seconds * random.uniform(0.5, 1.0)


class Fleet:
    """All agents, and what they share."""

    def __init__(self, ca: pathlib.Path, port: int, tokens: dict[str, str]) -> None:
        self.port, self.context = port, h2stream.open_context(ca)
        self.poll = selectors.DefaultSelector()
        self.dials = 0
        self.ended: collections.Counter[str] = collections.Counter()
        """Streams and dials by what ended them."""
        self._request = feed_pb2.ConnectRequest()
        pbform.fill(self._request.snapshot.report, feedload.a_report("", 3))
        pbform.fill(self._request.snapshot.topology, feedload.a_topology())
        self._agents = [Agent(self, node, token) for node, token in tokens.items()]

    def snapshot(self, node: str, sequence: int) -> bytes:
        """Return what a node says of itself."""
        self._request.snapshot.sequence = sequence
        self._request.snapshot.report.node = node
        return self._request.SerializeToString()

    def run(self, orders: IO[str], answers: IO[str]) -> None:
        """Keep every agent at it, and answer every order until there are no more."""
        self.poll.register(orders, selectors.EVENT_READ)
        while True:
            if self._go_on():
                line = orders.readline()
                if not line:
                    break
                if line.strip() == "again":
                    self._hang_up("asked")
                print(json.dumps(self.figures()), file=answers, flush=True)
        self.poll.unregister(orders)
        self._hang_up("over")

    def _go_on(self) -> bool:
        """Do what is due and what has come in; True if there is an order."""
        is_called = False
        for key, _ in self.poll.select(_PAUSE_SECONDS):
            if key.data is None:
                is_called = True
            else:
                key.data.ready()
        now = time.monotonic()
        for agent in self._agents:
            if agent.act_at <= now:
                agent.act(now)
        return is_called

    def _hang_up(self, why: str) -> None:
        for agent in self._agents:
            agent.hang_up(why)

    def figures(self) -> dict[str, object]:
        """Return what the parent asks for."""
        return {
            "welcomed": sum(agent.is_welcome for agent in self._agents),
            "dials": self.dials,
            "ended": dict(self.ended),
        }


if __name__ == "__main__":
    feedhub.allow_files()
    lines = pathlib.Path(sys.argv[3]).read_text().splitlines()
    Fleet(pathlib.Path(sys.argv[1]), int(sys.argv[2]), dict(line.split() for line in lines)).run(sys.stdin, sys.stdout)
