"""All rules: the modules that find things, and every row by id.

A new fault is a row in one of these modules and a line or a function in its `find`; docs/rules.md is made from `ROWS`.
"""

import collections
import types
from collections.abc import Callable, Iterable, Iterator, Mapping

from agent.core import maintenance, unconfirmed
from agent.core.context import Context
from agent.core.rules import (
    degraded,
    devicefiles,
    devices,
    dra,
    driver,
    fabric,
    hardware,
    holders,
    injection,
    labels,
    layout,
    mig,
    nodestatus,
    observer,
    pods,
    registration,
    rejections,
    sharing,
)
from agent.model.finding import Rule, Suspicion
from agent.model.policy import Mode, Policy

_FINDERS: tuple[Callable[[Context], Iterable[Suspicion]], ...] = (
    observer.find,
    driver.find,
    registration.find,
    nodestatus.find,
    devices.find,
    devicefiles.find,
    fabric.find,
    degraded.find,
    mig.find,
    sharing.find,
    dra.find,
    holders.find,
    hardware.find,
    labels.find,
    layout.find,
    injection.find,
    rejections.find,
    pods.find,
)

ROWS: Mapping[str, Rule] = types.MappingProxyType(
    {
        rule.id: rule
        for module in (
            observer, driver, registration, nodestatus, devices, fabric, degraded, mig, sharing, holders, hardware, labels, layout, dra,
            devicefiles,
            injection, rejections, pods, maintenance, unconfirmed,
        )
        for rule in module.RULES
    }
)  # fmt: skip


def count_by_mode(policy: Policy) -> Mapping[str, int]:
    """Return how many rules are in each mode."""
    counted = collections.Counter(policy.mode(rule).value for rule in ROWS)
    return {mode.value: counted[mode.value] for mode in Mode}


def find(context: Context) -> Iterator[Suspicion]:
    """Yield every suspicion of every rule that is not off."""
    for finder in _FINDERS:
        yield from (item for item in finder(context) if context.policy.mode(item.rule.id) is not Mode.OFF)
