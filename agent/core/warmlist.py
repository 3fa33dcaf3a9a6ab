"""The operator's list of images to have ready.

In: a JSON object, `{"images": [{"image": ..., "mode": ..., "pin": ...}], "budget_bytes": ...}`. Out: what is wanted, in
the list's order, and the budget; or every problem at once, each with its path.

Invariant: a list that has a problem is not used at all. Two entries for one image that ask for different things disagree:
neither is better, so a person decides.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agent.core import warmref
from agent.model.warm import Mode, Refused, Wanted

MAX_ENTRIES = 1000
"""Each tag costs its registry a question every few minutes."""
MAX_PROBLEMS = 20
_KEYS = frozenset(("image", "mode", "pin"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WarmList:
    """What an operator wants ready."""

    wanted: tuple[Wanted, ...] = ()
    budget_bytes: int = 0


class BadList(ValueError):
    """The list does not fit; `problems` holds one line each."""

    def __init__(self, problems: list[str]) -> None:
        more = len(problems) - MAX_PROBLEMS
        self.problems = tuple(problems[:MAX_PROBLEMS] + ([f"and {more} more problems"] if more > 0 else []))
        super().__init__("\n".join(self.problems))


def parse(content: Any) -> WarmList:
    """Return the list, or raise BadList."""
    if not isinstance(content, dict):
        raise BadList(["$: is not an object"])
    problems = [f"$.{key}: is not known" for key in sorted(content.keys() - {"images", "budget_bytes"})]
    budget, entries = content.get("budget_bytes"), content.get("images")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget <= 0:
        problems.append("$.budget_bytes: is required, a whole number of bytes above 0")
    if not isinstance(entries, list):
        problems.append("$.images: is required, an array")
        raise BadList(problems)
    if len(entries) > MAX_ENTRIES:
        problems.append(f"$.images: {len(entries)} entries, at most {MAX_ENTRIES}")
        raise BadList(problems)
    wanted = _entries(entries, problems)
    if problems or not isinstance(budget, int):
        raise BadList(problems)
    return WarmList(wanted=wanted, budget_bytes=budget)


def _entries(entries: list[Any], problems: list[str]) -> tuple[Wanted, ...]:
    found: dict[str, tuple[int, Wanted]] = {}
    for index, entry in enumerate(entries):
        wanted = _entry(f"$.images[{index}]", entry, problems)
        if wanted is None:
            continue
        first, other = found.setdefault(str(wanted.reference), (index, wanted))
        if other != wanted:
            problems.append(f"$.images[{index}]: disagrees with $.images[{first}] about {wanted.reference}")
    return tuple(wanted for _, wanted in found.values())


def _entry(path: str, entry: Any, problems: list[str]) -> Wanted | None:
    before = len(problems)
    if not isinstance(entry, Mapping):
        problems.append(f"{path}: is not an object")
        return None
    problems.extend(f"{path}.{key}: is not known" for key in sorted(entry.keys() - _KEYS))
    name, mode, pin = entry.get("image"), entry.get("mode", Mode.AUTO.value), entry.get("pin", False)
    if mode not in set(Mode):
        problems.append(f"{path}.mode: {mode!r} is none of {', '.join(Mode)}")
    if not isinstance(pin, bool):
        problems.append(f"{path}.pin: is neither true nor false")
    elif pin and mode == Mode.SHADOW:
        problems.append(f"{path}.pin: what only a lease holds cannot be pinned")
    reference = warmref.parse(name) if isinstance(name, str) else None
    match reference:
        case None:
            problems.append(f"{path}.image: is required, a text")
        case Refused(detail=detail):
            problems.append(f"{path}.image: {detail}")
        case found if len(problems) == before:
            return Wanted(reference=found, mode=Mode(mode), pin=pin)
        case _:
            pass
    return None
