"""What a GPU or an instance is, by the checks of the rules: healthy, degraded, unhealthy, lost or unknown.

Values only. A condition with a `rule` takes ids out of the usable ones; one with a `note` says that the device keeps serving,
and with what restriction (agents.md e5: degraded capacity is a state of its own).
"""

import dataclasses

from agent.model.finding import Rule
from muster.model.report import DeviceState
from muster.model.vocabulary import Reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The answer of one check."""

    state: DeviceState
    reason: Reason
    rule: Rule | None = None
    """Takes its ids out of the usable ones."""
    note: Rule | None = None
    """Says so and changes no number."""
    detail: str = ""


HEALTHY = Condition(state=DeviceState.HEALTHY, reason=Reason.OK)
