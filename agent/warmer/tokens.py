"""The bearer tokens that registries gave, for as long as they are good.

In: where, for what and with which credentials a token was had. Out: that token, to whoever shows the same again.

Invariants: a token answers only for the whole credential that it was had with: pods of many tenants ask here, and the user
name may be the same for all of them (`_json_key`). No password is kept, only its hash. At most MAX_TOKENS are kept, none
beyond its time.

Asked from many threads at once (registry.py).
"""

import hashlib
import threading
from collections.abc import Callable

Credentials = tuple[str, str]
_Key = tuple[str, str, bytes]

MAX_TOKENS = 256
"""A node asks about some tens of repositories; a token more costs two requests."""
DEFAULT_SECONDS = 60.0
"""What the token protocol says of an answer without `expires_in`."""
MOST_SECONDS = 3600.0


class Tokens:
    """The tokens of one client."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: dict[_Key, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, host: str, scope: str, credentials: Credentials | None) -> str:
        """Return the token that these credentials were given; empty: there is none."""
        with self._lock:
            token, until = self._kept.get(_key(host, scope, credentials), ("", 0.0))
        return token if self._monotonic() < until else ""

    def keep(self, host: str, scope: str, credentials: Credentials | None, token: str, lifetime: object) -> None:
        """Keep a token, a little shorter than it is good; `lifetime` is what the token server said."""
        now = self._monotonic()
        with self._lock:
            self._kept = {key: kept for key, kept in self._kept.items() if now < kept[1]}
            self._kept[_key(host, scope, credentials)] = (token, now + _seconds(lifetime) * 0.8)
            while len(self._kept) > MAX_TOKENS:
                del self._kept[next(iter(self._kept))]


def _key(host: str, scope: str, credentials: Credentials | None) -> _Key:
    # By length, so that no two pairs make the same text.
    shown = "" if credentials is None else f"{len(credentials[0])}:{credentials[0]}{credentials[1]}"
    return host, scope, hashlib.sha256(shown.encode(errors="surrogatepass")).digest()


def _seconds(said: object) -> float:
    """Return a lifetime that can be counted with.

    >>> _seconds(300), _seconds("300"), _seconds(None), _seconds("soon"), _seconds(1e999)
    (300.0, 300.0, 60.0, 60.0, 3600.0)
    """
    try:
        seconds = float(said) if isinstance(said, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return DEFAULT_SECONDS
    return min(seconds, MOST_SECONDS) if seconds > 0 else DEFAULT_SECONDS
