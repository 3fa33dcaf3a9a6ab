"""Do a program's three TLS files work, and together, now? Asked once at the start, so that a wrong file has a name.

In: three paths, the flags that named them, which side of a connection we are. Out: what is wrong, one line each.

Why: gRPC says nothing of wrong files before the first handshake, and then that a port cannot be bound or a socket was closed.

How: a handshake with ourselves, in memory, where nothing but our own certificate is trusted. OpenSSL then checks what any
peer will: the key belongs to the certificate, the dates, the use.

Not here: whether the peer's authority signed the certificate. That authority may be another than `ca`, so only the peer can say.
"""

import dataclasses
import pathlib
import ssl


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A file and the flag that named it."""

    flag: str
    path: pathlib.Path


def problems(*, ca: Named, certificate: Named, key: Named, is_server: bool) -> list[str]:
    """Return what is wrong with the files, empty if they work."""
    unreadable = [
        f"{named.flag}: {named.path}: {why}" for named in (ca, certificate, key) if (why := _unreadable(named))
    ]
    if unreadable:
        return unreadable
    broken = [
        f"{named.flag}: {named.path}: holds no certificate" for named in (ca, certificate) if not _holds_one(named)
    ]
    if broken:
        return broken
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    try:
        for context in (server, client):
            # An empty password: a key that needs one is an error, not a question on the terminal.
            context.load_cert_chain(certificate.path, key.path, password="")
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            return [f"{key.flag}: {key.path}: does not belong to {certificate.flag} {certificate.path}"]
        return [f"{key.flag}: {key.path}: holds no key without a password"]
    client.verify_mode = ssl.CERT_REQUIRED if is_server else ssl.CERT_NONE
    server.verify_mode = ssl.CERT_NONE if is_server else ssl.CERT_REQUIRED
    for context in (server, client):
        context.load_verify_locations(certificate.path)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    refusal = _handshake(server, client)
    return [f"{certificate.flag}: {certificate.path}: {refusal}"] if refusal else []


def _unreadable(named: Named) -> str:
    try:
        content = named.path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    return "" if b"-----BEGIN " in content else "is not PEM"


def _holds_one(named: Named) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(named.path)
    except ssl.SSLError:
        return False
    return True


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Let the two shake hands; return why one refused the other, empty if none did."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    # The client goes first and again: in TLS 1.3 it is done before the server has seen its certificate.
    turns = [
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    ] * 3
    for side in turns:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:
            return error.reason or str(error)
    return ""
