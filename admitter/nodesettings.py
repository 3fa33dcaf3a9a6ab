"""Settings of what Muster says on Nodes, and of the breaker: a part of AdmitterConfig.

A part of its own because these settings are about one subject; flags, variables and bounds follow from the fields as in
config.py. The policies that the core wants are derived here.
"""

import dataclasses
import re
from typing import Any

from admitter.gatesettings import GateSettings
from admitter.model.nodestatus import StatusPolicy, TaintPolicy
from admitter.model.ruling import HoldMode, HoldPolicy
from muster import settings
from muster.model.report import Verdict
from muster.settings import setting

_CAP = re.compile(r"(\d{1,7})(%?)")
_TAINTING = (Verdict.BLOCKED, Verdict.WRONG_SHAPE, Verdict.OVER, Verdict.CONTENDED, Verdict.UNDER)
"""Verdicts that may taint. BLIND and TRANSIENT say nothing against a node."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(GateSettings):
    node_conditions: bool = setting(default=True, text="write conditions and Events on Nodes")
    silent_seconds: float = setting(
        60.0,
        text="an agent not heard for so long, or for node_ttl, makes its node's conditions Unknown",
        low=1,
        high=86400,
    )
    node_writes_per_minute: int = setting(
        600, text="most writes on Nodes in a minute, all nodes together", low=1, high=60000
    )
    taints: bool = setting(default=False, text="taint nodes that cannot be trusted")
    taint_verdicts: tuple[str, ...] = setting(
        ("BLOCKED", "WRONG_SHAPE", "OVER"), text="verdicts that taint a node, comma-separated"
    )
    taint_cap: str = setting("10%", text="most nodes tainted at a time: a count, or a percentage of the nodes heard")
    serving_namespaces: tuple[str, ...] = setting(
        ("gpu-operator", "nvidia-gpu-operator"),
        text="namespaces of the GPU stack: no taint may keep their DaemonSets out, and only there a MIG manager is believed",
    )
    breaker: HoldMode = setting(
        HoldMode.STANDS, text="admission while too many nodes changed at once: stands, pause or off"
    )
    breaker_share: float = setting(0.25, text="share of the fleet whose turning trips the breaker", low=0.01, high=1)
    breaker_rule_share: float = setting(0.15, text="the same for one rule", low=0.01, high=1)
    breaker_version_share: float = setting(0.5, text="the same among one agent version's nodes", low=0.01, high=1)
    breaker_least_nodes: int = setting(5, text="fewer nodes than this never trip it", low=1, high=100000)
    breaker_window_seconds: float = setting(
        300.0, text="nodes that turned within this count together", low=1, high=86400
    )

    def status_policy(self, node_ttl_seconds: float) -> StatusPolicy:
        """Return how conditions follow the feed: none speaks of silence while the node still counts."""
        return StatusPolicy(silent_seconds=max(self.silent_seconds, node_ttl_seconds))

    @property
    def taint_policy(self) -> TaintPolicy:
        """When a node is tainted."""
        number, is_share = cap(self.taint_cap)
        return TaintPolicy(
            enabled=self.taints,
            verdicts=frozenset(Verdict(name) for name in self.taint_verdicts),
            cap_nodes=None if is_share else number,
            cap_share=number / 100 if is_share else 0.0,
        )

    @property
    def hold_policy(self) -> HoldPolicy:
        """When the breaker holds."""
        return HoldPolicy(
            mode=self.breaker,
            window_seconds=self.breaker_window_seconds,
            share=self.breaker_share,
            rule_share=self.breaker_rule_share,
            version_share=self.breaker_version_share,
            least_nodes=self.breaker_least_nodes,
        )


def cap(text: str) -> tuple[int, bool]:
    """Return a number and whether it is a percentage.

    >>> cap("10%"), cap("3")
    ((10, True), (3, False))
    """
    match = _CAP.fullmatch(text.strip())
    if match is None or (match[2] and int(match[1]) > 100):
        raise ValueError(f"{text!r} is neither a count nor a percentage")
    return int(match[1]), bool(match[2])


def _cap(config: Any) -> str:
    try:
        cap(config.taint_cap)
    except ValueError as error:
        return f"--taint-cap: {error}"
    return ""


def _verdicts(config: Any) -> str:
    allowed = [verdict.value for verdict in _TAINTING]
    wrong = [name for name in config.taint_verdicts if name not in allowed]
    return f"--taint-verdicts: {', '.join(wrong)}: not among {', '.join(allowed)}" if wrong else ""


CHECKS: tuple[settings.Check, ...] = (_cap, _verdicts)
