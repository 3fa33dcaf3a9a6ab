"""The feed's fixed points: its version, its method, its bounds.

Invariant: peers whose minor versions differ by at most `MAX_SKEW` talk; others are refused by name, not by accident.
Fields that a peer does not know are ignored, and an enum value that it does not know is never taken for another.
"""

MINOR = 1
"""Minor version of muster.v1's feed. Rises with every addition that a peer must know of."""

MAX_SKEW = 2

SERVICE = "muster.v1.FeedService"
METHOD = f"/{SERVICE}/Connect"

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""A snapshot of 4,096 devices, eight GPUs of seven MIG instances with 73 replicas each, takes about 2 MiB."""


def is_compatible(minor: int) -> bool:
    """True if this version talks to a peer of that minor version.

    >>> is_compatible(MINOR + MAX_SKEW), is_compatible(MINOR + MAX_SKEW + 1)
    (True, False)
    """
    return abs(minor - MINOR) <= MAX_SKEW
