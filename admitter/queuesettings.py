"""Settings of the queue and of placement: levels of the network, reservations, limits. A part of AdmitterConfig.

Lists are of `name=value`, comma-separated in a flag and a variable alike.
"""

import dataclasses
import re
from typing import Any

from admitter.imagesettings import ImageSettings
from admitter.model.decision import NetworkLevel
from admitter.model.gang import Level
from admitter.model.nodefacts import TOPOLOGY_POLICIES, KubeletPolicies
from admitter.model.promise import TrustPolicy
from admitter.model.queue import QueuePolicy
from muster import settings
from muster.model import codec
from muster.settings import setting

_LEVEL = re.compile(
    r"([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)=((?:[a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62})"
)
_LABEL = re.compile(r"(?:[a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
_LIMIT = re.compile(r"([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?|\*)=(\d{1,9})")
_MOST_LEVELS = 16
"""As many as Kueue's Topology has (topology.md section 4)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(ImageSettings):
    network_levels: tuple[str, ...] = setting(
        (), text="levels above the NVLink clique, finest first: rack=topology.example.com/rack,zone=LABEL"
    )
    topology_policy_label: str = setting(
        "", text="label of a Node that says its kubelet's topologyManagerPolicy; none: no label does"
    )
    topology_policy: str = setting("", text="the same for Nodes without that label; none: not known")
    namespace_limits: tuple[str, ...] = setting(
        (), text="most whole GPUs that a namespace's gangs hold: team-a=64,*=8; * is every other one"
    )
    ageing_seconds: float = setting(
        86_400.0, text="a gang that waits so long goes before all priorities; 0: never", low=0, high=31_536_000
    )
    reserved_share: float = setting(
        0.5, text="most of the fleet's units kept idle for one gang, until it has aged", low=0, high=1
    )
    hold_seconds: float = setting(
        3600.0, text="how long units are kept for a place that gains none and has no declared end", low=0, high=604_800
    )
    start_seconds: float = setting(300.0, text="what a cold start adds to a declared runtime", low=0, high=86_400)
    overrun_ban_seconds: float = setting(
        86_400.0, text="how long an overrun costs its namespace the right to pass", low=0, high=31_536_000
    )

    place_kept_seconds: float = setting(
        600.0, text="how long a gang that was withdrawn before it ran keeps its place", low=0, high=86_400
    )
    places_per_namespace: int = setting(200, text="most such places of a namespace, the newest", low=0, high=100_000)
    quarantine_seconds: float = setting(
        3600.0,
        text="a node that refused a pod and whose agent finds no cause is tried again after this",
        low=1,
        high=604_800,
    )

    @property
    def trust_policy(self) -> TrustPolicy:
        """When a node is believed again after a broken promise."""
        return TrustPolicy(quarantine_seconds=self.quarantine_seconds)

    @property
    def kubelet_policies(self) -> KubeletPolicies:
        """What the kubelets' Topology Managers refuse."""
        return KubeletPolicies(label=self.topology_policy_label, otherwise=self.topology_policy)

    @property
    def levels(self) -> tuple[NetworkLevel, ...]:
        """The levels of the network, finest first."""
        found = (_LEVEL.fullmatch(part) for part in self.network_levels)
        return tuple(NetworkLevel(name=match[1], label=match[2]) for match in found if match is not None)

    @property
    def queue_policy(self) -> QueuePolicy:
        """What the queue goes by."""
        limits = (_LIMIT.fullmatch(part) for part in self.namespace_limits)
        return QueuePolicy(
            ageing_seconds=self.ageing_seconds,
            reserved_share=self.reserved_share,
            hold_seconds=self.hold_seconds,
            start_seconds=self.start_seconds,
            overrun_ban_seconds=self.overrun_ban_seconds,
            place_kept_seconds=self.place_kept_seconds,
            places_per_namespace=self.places_per_namespace,
            namespace_limits=codec.freeze({match[1]: int(match[2]) for match in limits if match is not None}),
        )


def _levels(config: Any) -> str:
    parts = config.network_levels
    problems = [f"{part!r} is not NAME=LABEL" for part in parts if not _LEVEL.fullmatch(part)]
    names = [level.name for level in config.levels]
    taken = {name for name in names if names.count(name) > 1 or name in {level.value for level in Level}}
    problems += [f"the name {name!r} is taken" for name in sorted(taken)]
    if len(parts) > _MOST_LEVELS:
        problems.append(f"{len(parts)} levels, not 0..{_MOST_LEVELS}")
    return "\n".join(f"--network-levels: {problem}" for problem in problems)


def _limits(config: Any) -> str:
    parts = config.namespace_limits
    problems = [f"{part!r} is not NAMESPACE=GPUS" for part in parts if not _LIMIT.fullmatch(part)]
    names = [part.partition("=")[0] for part in parts]
    problems += [f"{name!r} comes twice" for name in sorted({name for name in names if names.count(name) > 1})]
    return "\n".join(f"--namespace-limits: {problem}" for problem in problems)


def _topology(config: Any) -> str:
    wrong = []
    if config.topology_policy_label and not _LABEL.fullmatch(config.topology_policy_label):
        wrong.append(f"--topology-policy-label: {config.topology_policy_label!r} is no label's key")
    if config.topology_policy and config.topology_policy not in TOPOLOGY_POLICIES:
        wrong.append(f"--topology-policy: {config.topology_policy!r} is none of {', '.join(TOPOLOGY_POLICIES)}")
    return "\n".join(wrong)


CHECKS: tuple[settings.Check, ...] = (_levels, _limits, _topology)
