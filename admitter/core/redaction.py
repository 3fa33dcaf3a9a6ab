"""Take the names of other tenants' objects out of what a person reads.

Input: a text of ours, the namespaces whose names may stand in it. Output: the text.

Invariant: resources keep their names; what looks like namespace/name of another namespace does not stay.
"""

import re
from collections.abc import Set

_OBJECT = re.compile(r"\b([a-z0-9][-a-z0-9.]*)/[a-z0-9][-a-z0-9.]*")
"""namespace/name, a resource, or a fraction."""


def redacted(text: str, shown: Set[str]) -> str:
    """Return a text without what looks like an object of a namespace that is not shown; resources keep their names.

    >>> redacted("kept for team-b/train; 6/8 nodes, 8 nvidia.com/gpu, team-a/x", {"team-a"})
    'kept for (hidden); 6/8 nodes, 8 nvidia.com/gpu, team-a/x'
    """
    return _OBJECT.sub(lambda match: match[0] if match[1] in shown or not _is_namespace(match[1]) else "(hidden)", text)


def _is_namespace(word: str) -> bool:
    """A namespace has no dot (RFC 1123 label), a resource's prefix always has one; a number is a count."""
    return "." not in word and not word.isdecimal()
