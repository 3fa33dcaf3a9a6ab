"""What an Xid says about a GPU: one table, with where each row comes from.

Invariant: total. A code without a row is DEGRADED, so that it is seen and never silent.

Why the driver comes first: NVML's recovery action (field 230) says what the driver itself wants done; published Xid lists
disagree with each other (agents.md b2). The table decides only where the driver cannot say.
"""

import dataclasses
import enum
import types
from collections.abc import Mapping


class Severity(enum.StrEnum):
    BENIGN = "benign"
    """The application's own; says nothing about the device."""
    READ_STATE = "read_state"
    """Another reading decides (row remap)."""
    DEGRADED = "degraded"
    """Reported; the device keeps serving."""
    FATAL = "fatal"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class XidPolicy:
    severity: Severity
    source: str


_DEFAULT = "agents.md b2, sane default"
_CATALOG = "agents.md b2, NVIDIA catalog: "


def _rows(codes: tuple[int, ...], severity: Severity, source: str) -> dict[int, XidPolicy]:
    return dict.fromkeys(codes, XidPolicy(severity=severity, source=source))


_RESTART_APP = (
    *(8, 11, 25, *range(39, 42), 60, *range(70, 73), *range(75, 78), 80, *range(82, 87), 88, 89),
    *(*range(96, 106), *range(126, 136), 139),
)
_IGNORE = (14, 37, 38, 44, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 157, 160, 161)

POLICY: Mapping[int, XidPolicy] = types.MappingProxyType(
    {
        **_rows(_RESTART_APP, Severity.BENIGN, _CATALOG + "restart app"),
        **_rows(_IGNORE, Severity.BENIGN, _CATALOG + "ignore"),
        **_rows((46, 62, 110, 136, 143, 155, 156, 158), Severity.FATAL, _CATALOG + "reset GPU"),
        **_rows((154,), Severity.READ_STATE, _CATALOG + "carries the recovery action"),
        **_rows((13, 31, 43, 45, 94, 68, 69, 32), Severity.BENIGN, _DEFAULT),
        **_rows((63,), Severity.READ_STATE, _DEFAULT + ": read the remap state"),
        **_rows((109,), Severity.DEGRADED, _DEFAULT + ": recovery action decides, else degrade"),
        **_rows((74, *range(144, 151)), Severity.DEGRADED, _DEFAULT + ": degrade the NVLink edge"),
        **_rows((48, 64, 79, 95, 119, 120, 140), Severity.FATAL, _DEFAULT),
    }
)

VERSION = 1
"""Raised with any change of a row."""

UNLISTED = XidPolicy(severity=Severity.DEGRADED, source=_DEFAULT + ": unlisted, degraded and never silent")


def policy_of(code: int) -> XidPolicy:
    """Return the row of a code.

    >>> policy_of(79).severity.value, policy_of(4711).severity.value
    ('fatal', 'degraded')
    """
    return POLICY.get(code, UNLISTED)
