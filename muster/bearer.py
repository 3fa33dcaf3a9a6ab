"""Bearer tokens on gRPC calls: a projected service-account token instead of a certificate.

In: the file that kubelet keeps fresh. Out: call metadata; on the other side, the token in it.

Invariant: a token is read anew for every call, since kubelet replaces the file; it is never logged. It goes over TLS only,
which gRPC leaves to us: metadata is sent on any channel.
"""

import pathlib
from collections.abc import Iterable

from muster import settings

KEY = "authorization"
_SCHEME = "Bearer "

Metadata = tuple[tuple[str, str], ...]


def metadata_of(path: pathlib.Path | None) -> Metadata:
    """Return the metadata of a call; empty without a file. InvalidSettings if there is no token in it."""
    if path is None:
        return ()
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise settings.InvalidSettings([f"token: {path}: {getattr(error, 'strerror', '') or error}"]) from error
    if not token or any(letter.isspace() for letter in token) or not token.isascii():
        raise settings.InvalidSettings([f"token: {path}: holds no token"])
    return ((KEY, _SCHEME + token),)


def token_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the one token that a call carries, or an empty text.

    >>> token_of((("authorization", "Bearer abc"),)), token_of((("authorization", "Basic abc"),)), token_of(None)
    ('abc', '', '')
    """
    values = [value for key, value in metadata or () if key == KEY]
    if len(values) != 1 or not isinstance(values[0], str) or not values[0].startswith(_SCHEME):
        return ""
    return values[0].removeprefix(_SCHEME).strip()
