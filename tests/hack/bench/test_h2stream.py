"""What a stream hears: messages whole, however the frames cut them, and room given back so that the server goes on."""

from hack.bench import h2stream


class Wire:
    """Stands for a connected socket."""

    def __init__(self):
        self.sent = b""

    def sendall(self, data):
        self.sent += data


def a_stream():
    stream = object.__new__(h2stream.Stream)
    stream._socket, stream._said, stream._owed, stream.answers = Wire(), b"", 0, 0
    stream._windows = {0: 65535, h2stream._STREAM: 65535}
    return stream


def test_messages_come_whole_whatever_the_frames():
    stream = a_stream()
    content = b"".join(b"\x00" + len(text).to_bytes(4, "big") + text for text in (b"one", b"", b"three"))
    for byte in content[:-1]:
        stream._take(h2stream._DATA, 0, h2stream._STREAM, bytes((byte,)))
    assert stream.messages() == [b"one", b""]
    stream._take(h2stream._DATA, 0, h2stream._STREAM, content[-1:])
    assert stream.messages() == [b"three"]
    assert stream.messages() == []


def test_room_is_given_back_on_the_connection_and_the_stream():
    stream = a_stream()
    for _ in range(3):
        stream._take(h2stream._DATA, 0, h2stream._STREAM, b"\x00" * 11_000)
    assert stream._socket.sent == b"".join(
        h2stream._frame(h2stream._WINDOW, 0, where, (33_000).to_bytes(4, "big")) for where in (0, h2stream._STREAM)
    )
