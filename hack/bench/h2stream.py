"""One gRPC stream over TLS, written by hand: as much HTTP/2 (RFC 9113) as a load generator needs and no more.

A gRPC client in Python costs as much for a message as the hub that is measured, and both share the machine's cores. What
the hub sees is the same: its own connection, handshake and certificate or token for every node, and one DATA frame per
message.
"""

import pathlib
import socket
import ssl
import struct

from muster import bearer, tls
from muster.model import protocol

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_STREAM = 1
_OUR_WINDOW = 65535
_HEADER_LIST = (
    (":method", "POST"),
    (":scheme", "https"),
    (":path", protocol.METHOD),
    (":authority", tls.ADMITTER_NAME),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)


class Ended(Exception):
    """The server ended the stream."""


def context_of(files: tls.Files) -> ssl.SSLContext:
    """Return a node's side of the handshake."""
    context = open_context(files.ca)
    context.load_cert_chain(str(files.certificate), str(files.key))
    return context


def open_context(ca: pathlib.Path) -> ssl.SSLContext:
    """Return the side of a node that shows a token instead of a certificate."""
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    return context


def files_of(folder: pathlib.Path, node: str) -> tls.Files:
    """Return where hack.pki put a node's pair."""
    return tls.Files(ca=folder / "ca.pem", certificate=folder / f"node-{node}.pem", key=folder / f"node-{node}.key")


def dial(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Return a connection whose handshake is done."""
    raw = socket.create_connection(("127.0.0.1", port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(raw, server_hostname=tls.ADMITTER_NAME)


class Stream:
    """An open call. `send` never waits: it is False while the server's window is shut."""

    def __init__(self, connection: ssl.SSLSocket, token: str = "") -> None:
        self._socket = connection
        self._unread = b""
        self._windows = {0: 65535, _STREAM: 65535}
        self.answers = 0
        """Frames of messages that came back."""
        self._said = b""
        """What came back and is no whole message yet."""
        self._owed = 0
        """Bytes that came and whose room in our windows the server has not been given back."""
        shown = ((bearer.KEY, f"Bearer {token}"),) if token else ()
        headers = b"".join(_literal(name, value) for name, value in (*_HEADER_LIST, *shown))
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, _END_HEADERS, _STREAM, headers))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> bool:
        """Send one message, if there is room for it."""
        payload = struct.pack("!BI", 0, len(message)) + message
        if len(payload) > min(self._windows.values()):
            return False
        for stream in self._windows:
            self._windows[stream] -= len(payload)
        self._socket.sendall(_frame(_DATA, 0, _STREAM, payload))
        return True

    def receive(self) -> None:
        """Take what the server has sent: windows, pings, settings. Waits if there is nothing, unless the socket does not."""
        while True:
            try:
                data = self._socket.recv(65536)
            except ssl.SSLWantReadError:
                break
            if not data:
                raise Ended("the server hung up")
            self._unread += data
            if not self._socket.pending():
                break
        while len(self._unread) >= 9:
            size = int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < 9 + size:
                break
            kind, flags = self._unread[3], self._unread[4]
            stream = int.from_bytes(self._unread[5:9], "big")
            payload, self._unread = self._unread[9 : 9 + size], self._unread[9 + size :]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _WINDOW:
            self._windows[stream] = self._windows.get(stream, 65535) + int.from_bytes(payload, "big")
        elif kind == _SETTINGS and not flags & _ACK:
            self._take_settings(payload)
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _DATA:
            self.answers += 1
            self._said += payload
            self._give_room(len(payload))
        elif kind in (_RST, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
            raise Ended(f"frame {kind}: {payload!r}")

    def messages(self) -> list[bytes]:
        """Return the whole messages that have come since the last call."""
        found = []
        while len(self._said) >= 5:
            end = 5 + int.from_bytes(self._said[1:5], "big")
            if len(self._said) < end:
                break
            found.append(self._said[5:end])
            self._said = self._said[end:]
        return found

    def _give_room(self, size: int) -> None:
        """Let the server go on: without this it falls silent after 64 KiB, and what it had to say is lost."""
        self._owed += size
        if self._owed >= _OUR_WINDOW // 2:
            more = self._owed.to_bytes(4, "big")
            self._socket.sendall(_frame(_WINDOW, 0, 0, more) + _frame(_WINDOW, 0, _STREAM, more))
            self._owed = 0

    def _take_settings(self, payload: bytes) -> None:
        for offset in range(0, len(payload), 6):
            name, value = struct.unpack_from("!HI", payload, offset)
            if name == 4:  # SETTINGS_INITIAL_WINDOW_SIZE counts for streams that are open, too
                self._windows[_STREAM] += value - _OUR_WINDOW

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(name: str, value: str) -> bytes:
    """A header field without indexing or Huffman code."""
    return b"\x00" + _length(len(name)) + name.encode() + _length(len(value)) + value.encode()


def _length(size: int) -> bytes:
    """An integer with a prefix of seven bits (RFC 7541, section 5.1).

    >>> _length(126).hex(), _length(127).hex(), _length(1337).hex()
    ('7e', '7f00', '7fba09')
    """
    if size < 127:
        return bytes((size,))
    found, rest = [127], size - 127
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes((*found, rest))
