"""What an injection is: how it comes, how it goes, and what must be seen of it while it is there.

Values only. `Shows` is written from the entries of faults.md, with the cause in the spelling of the catalogue's names; it says
what an agent that can see must report: as TRANSIENT or as the verdict, and as nothing but the verdict once the entry's own
time has passed.
"""

import dataclasses
from collections.abc import Callable

from hack.soak.oracle import PLANES
from hack.soak.world import World


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shows:
    """What the feed must say."""

    causes: frozenset[str] = frozenset()
    """Any of them; none: no finding needs to be there."""
    verdict: str = ""
    """Of that finding, in the end; empty: not held to one."""
    wait_seconds: float = 0.0
    """By when, in the time of faults.md section 2."""
    devices: frozenset[str] = frozenset()
    """One of these must be named; none: no device needs to be."""
    unverified: str = ""
    """A plane or check that must be listed as unverified."""
    is_stale: bool = False
    """The admitter must call the node stale."""
    through: frozenset[str] = PLANES
    """Planes that must be readable for anybody to see it."""

    @property
    def is_silent(self) -> bool:
        """True if nothing needs to be said."""
        return not (self.causes or self.unverified or self.is_stale)


def shows(*causes: str, verdict: str = "", wait: float = 0.0, devices: tuple[str, ...] = ()) -> Shows:
    """Return what must be said."""
    return Shows(causes=frozenset(causes), verdict=verdict, wait_seconds=wait, devices=frozenset(devices))


def shows_of_node(*causes: str, verdict: str = "", wait: float = 0.0) -> Shows:
    """Return what must be said whether or not anything is advertised."""
    return without(shows(*causes, verdict=verdict, wait=wait), "promise")


def without(shown: Shows, *planes: str) -> Shows:
    """Return what must be said though these planes cannot be read: the injury itself may be why."""
    return dataclasses.replace(shown, through=shown.through - set(planes))


NOTHING = Shows()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hurt:
    """One injection that is in force."""

    mend: Callable[[], None]
    shows: Shows = NOTHING
    then: "Callable[[], None] | None" = None
    """A second injection on top of it, once it was seen."""


def _always(world: World) -> bool:  # noqa: ARG001
    return True


PLUGIN_LIST = frozenset({"plugin's list"})
"""Which devices the plugin saw when it started: one that missed a GPU and then a new cut has one fault, and one cure."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Injury:
    """A kind of injection."""

    name: str
    group: str
    """Letter of faults.md section 4, N for a healthy state, X for programs and files."""
    inflict: Callable[[World], Hurt]
    touches: frozenset[str] = frozenset()
    """What it has for itself: two injuries that touch the same thing are never in force together."""
    weight: float = 1.0
    fits: Callable[[World], bool] = _always
    is_alone: bool = False
    """Never beside another one."""
