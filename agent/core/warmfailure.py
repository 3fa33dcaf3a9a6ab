"""What a failed pull means, and when to try again.

In: what containerd or a registry answered. Out: a Reason, then a Failure with the moment of the next try.

containerd answers most failures with UNKNOWN and a text (images.md section 4, rule 5), so texts are what there is to go
by; they stand in one table, first match wins, and whatever fits none is PullFailed, never success.

Invariant: a host that says 429 is left alone by all images together, for at least as long as it asks for; containerd
itself sends 6 to 12 requests in 0.04 s and ignores Retry-After (images.md section 11).
"""

import dataclasses
import re
from collections.abc import Mapping

from agent.model.warm import Failure, Reason

_TEXTS: tuple[tuple[re.Pattern[str], Reason], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        # gRPC's own words about containerd's socket: they hold "connection refused" too.
        (r"\bunix:|socket closed|goaway", Reason.RUNTIME_AWAY),
        (r"no space left on device|disk quota exceeded", Reason.DISK_FULL),
        (r"\b429\b|toomanyrequests|too many requests", Reason.TOO_MANY_REQUESTS),
        (r"unexpected commit digest|failed size validation|unexpected digest|invalid checksum", Reason.CORRUPT_BLOB),
        (r"unexpected commit size|short read|gzip: invalid|flate: corrupt", Reason.CORRUPT_BLOB),
        (r"\b40[13]\b|unauthorized|authorization failed|access denied|denied:", Reason.UNAUTHORIZED),
        (r"no match for platform|no matching manifest", Reason.NO_PLATFORM),
        (r"schema ?1|manifest\.v1\+prettyjws", Reason.SCHEMA_1),
        (
            r"connection refused|no such host|i/o timeout|no route to host|tls:|x509:|\b50[0234]\b",
            Reason.REGISTRY_UNREACHABLE,
        ),
        (r"connection reset|unexpected EOF|broken pipe|server misbehaving", Reason.REGISTRY_UNREACHABLE),
        (r"not found|manifest unknown|name unknown", Reason.NOT_FOUND),
    )
)

_QUERY = re.compile(r"""\?.*?(?=\\?": |$)""", re.DOTALL)
"""Of an address, up to the end of Go's quotes, or to the end: what a blob is redirected to is signed there."""
_SHOWN = 300

_CODES = {"UNAVAILABLE": Reason.RUNTIME_AWAY, "NOT_FOUND": Reason.NOT_FOUND}
"""Codes that mean something by themselves, where the text says nothing."""

_STATUSES = {401: Reason.UNAUTHORIZED, 403: Reason.UNAUTHORIZED, 404: Reason.NOT_FOUND, 429: Reason.TOO_MANY_REQUESTS}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How long to wait: doubling from `first` to `longest`."""

    first: float
    longest: float
    is_of_host: bool = False


_QUICK = Retry(first=5, longest=600)
_SLOW = Retry(first=600, longest=3600)
RETRIES: Mapping[Reason, Retry] = {
    Reason.NOT_FOUND: _SLOW,
    Reason.UNAUTHORIZED: _SLOW,  # and at once when the credential changes
    Reason.SECRET_MISSING: _SLOW,  # and at once when it comes
    Reason.TOO_MANY_REQUESTS: Retry(first=60, longest=1800, is_of_host=True),
    Reason.REGISTRY_UNREACHABLE: Retry(first=5, longest=600, is_of_host=True),
    Reason.STALLED: _QUICK,
    Reason.CORRUPT_BLOB: Retry(first=2, longest=3600),
    Reason.DISK_FULL: _SLOW,
    Reason.DISK_GUARD: _QUICK,
    Reason.OVER_BUDGET: _SLOW,
    Reason.YIELDING: Retry(first=1, longest=1),
    Reason.HOST_HELD: Retry(first=1, longest=60),
    Reason.RUNTIME_AWAY: Retry(first=0.5, longest=10),
    Reason.PULL_FAILED: _QUICK,
    Reason.INCOMPLETE: _QUICK,
    Reason.LAZY_BROKEN: _QUICK,
    Reason.SCHEMA_1: _SLOW,
    Reason.NO_PLATFORM: _SLOW,
    Reason.FOREIGN_LAYER: _SLOW,
    Reason.EMPTY_LAYER: _SLOW,
    Reason.BAD_MANIFEST: _SLOW,
    Reason.BAD_CONFIG: _SLOW,
    Reason.BAD_REFERENCE: _SLOW,
}
"""Total: a test holds it to the enum."""


def shown(text: str) -> str:
    """Return as much of a text of others as logs and the feed may hold.

    >>> shown('failed to do request: Get "https://store/blob?Signature=s3cret": dial tcp: i/o timeout')
    'failed to do request: Get "https://store/blob?...": dial tcp: i/o timeout'
    """
    return _QUERY.sub("?...", text)[:_SHOWN]


def of_call(code: str, text: str) -> Reason:
    """Return what a failed call to containerd means.

    >>> of_call("UNKNOWN", "failed to pull: unexpected status: 429 Too Many Requests").value
    'TooManyRequests'
    """
    for pattern, reason in _TEXTS:
        if pattern.search(text):
            return reason
    return _CODES.get(code, Reason.PULL_FAILED)


def of_status(status: int) -> Reason:
    """Return what a registry's answer means."""
    return _STATUSES.get(status, Reason.REGISTRY_UNREACHABLE if status >= 500 else Reason.PULL_FAILED)


def failed(
    before: Failure | None,
    reason: Reason,
    detail: str,
    *,
    host: str,
    now: float,
    jitter: float,
    retry_after: float = 0.0,
) -> Failure:
    """Return the failure with its next try; `jitter` of 0..1 spreads a fleet over half as long again."""
    attempts = before.attempts + 1 if before is not None and before.reason is reason else 1
    retry = RETRIES[reason]
    seconds = min(retry.longest, retry.first * 2 ** min(attempts - 1, 20)) * (1 + jitter / 2)
    if reason is Reason.CORRUPT_BLOB and attempts > 1:
        seconds = retry.longest  # Once more from another place; then it is the image that is broken.
    return Failure(
        reason=reason,
        detail=shown(detail),
        attempts=attempts,
        retry_at=now + max(seconds, retry_after),
        host=host if retry.is_of_host else "",
    )
