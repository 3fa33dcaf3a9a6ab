"""Who calls: a name that a handshake or the API server vouches for.

Values only. A name never comes from a message. `Node` may feed its node and nothing else; `User` may ask, as far as the
API server's authorisation lets it.
"""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from muster.model import codec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An agent, known to run on this node."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who asks: a person, a launcher, another admitter."""

    name: str
    """As RBAC knows it: `system:serviceaccount:NAMESPACE:NAME`, or `muster:client:NAME` of a certificate."""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = codec.mapping()

    @property
    def owner(self) -> str:
        """Return the name under which gangs belong to it."""
        return self.name.removeprefix("muster:client:")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nobody:
    """Not known, and why."""

    reason: str
    may_retry: bool = False
    """The API server could not be asked: the same token may be good."""


Caller: TypeAlias = Node | User | Nobody


class Unanswered(Exception):
    """The API server could not be asked what a caller may: not a no, and not a yes."""
