"""Settings of the gate adapter: a part of AdmitterConfig. The policy that the core wants is derived here."""

import dataclasses
import re
from typing import Any

from admitter.core import request
from admitter.core.keepnodes import KeepPolicy
from admitter.core.outage import OutagePolicy
from admitter.model.hold import GatePolicy
from admitter.queuesettings import QueueSettings
from muster import settings
from muster.settings import setting

_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?|\*")
_WRITING = ("gates", "taints", "keep_pools", "webhook_listen")
_POOL = re.compile(r"(?:[a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}=[-A-Za-z0-9_.]{0,63}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings(QueueSettings):
    gates: bool = setting(
        default=False, text="place pods that carry our scheduling gate, and let them go; needs an API server"
    )
    observe: tuple[str, ...] = setting(
        (),
        text="namespaces whose gangs are decided about beside the scheduler that starts them, and nothing is written; "
        "comma-separated, * is every one",
    )
    gates_before: tuple[str, ...] = setting((), text="gates of others that are lifted before ours, comma-separated")
    lease_resources: tuple[str, ...] = setting(
        (), text="resources beside nvidia.com/ that a lease is held on, comma-separated"
    )
    bind_patience_seconds: float = setting(
        60.0, text="how long a pod that was let go may stay unbound before its gang is planned anew", low=1, high=3600
    )
    not_started_limit: int = setting(
        0,
        text="how many pods of a Job may fail unstarted under the condition muster.dev/NotStarted; 0: no pod gets it",
        low=0,
        high=1000,
    )
    strike_seconds: float = setting(
        5.0, text="how long a gang waits after its place was refused; doubles with each refusal", low=0.1, high=300
    )

    fail_open: tuple[str, ...] = setting(
        (), text="namespaces whose gangs go without a lease while no agent can be seen, comma-separated; * is every one"
    )
    fail_open_after_seconds: float = setting(
        300.0, text="how long the agents must be out of sight before that", low=1, high=86_400
    )
    fail_open_pods_per_minute: int = setting(
        60, text="how many pods of such a namespace go in a minute; a gang goes whole", low=1, high=100_000
    )

    keep_pools: tuple[str, ...] = setting(
        (),
        text="nodes that autoscalers are asked to leave while they are leased or reserved: LABEL=VALUE, comma-separated",
    )
    keep_most: int = setting(100, text="most such nodes at a time", low=1, high=100_000)

    @property
    def keep_policy(self) -> KeepPolicy:
        """Which nodes autoscalers are asked to leave."""
        pairs = (pool.partition("=") for pool in self.keep_pools)
        return KeepPolicy(pools=tuple((label, value) for label, _, value in pairs), most=self.keep_most)

    @property
    def outage_policy(self) -> OutagePolicy:
        """Which queues fail open, and how fast."""
        return OutagePolicy(
            queues=frozenset(self.fail_open),
            after_seconds=self.fail_open_after_seconds,
            pods_per_minute=self.fail_open_pods_per_minute,
        )

    @property
    def gate_policy(self) -> GatePolicy:
        """How held pods are handled."""
        return GatePolicy(
            gates_before=frozenset(self.gates_before),
            devices=frozenset(self.lease_resources),
            bind_patience_seconds=self.bind_patience_seconds,
            pull_patience_seconds=self.pull_patience_seconds,
            strike_seconds=self.strike_seconds,
        )


def _pools(config: Any) -> str:
    problems = [f"{pool!r} is not LABEL=VALUE" for pool in config.keep_pools if not _POOL.fullmatch(pool)]
    return "\n".join(f"--keep-pools: {problem}" for problem in problems)


def _queues(config: Any) -> str:
    given = (("--fail-open", config.fail_open), ("--observe", config.observe))
    return "\n".join(
        f"{flag}: {each!r} is no namespace" for flag, names in given for each in names if not _NAMESPACE.fullmatch(each)
    )


def _leased(config: Any) -> str:
    problems = [name for name in config.lease_resources if not request.is_extended(name)]
    return "\n".join(f"--lease-resources: {name!r} is no extended resource, DOMAIN/NAME" for name in problems)


def _observes_alone(config: Any) -> str:
    """Refuse whatever would write: who observes leaves the cluster as it is."""
    writing = [name for name in _WRITING if config.observe and getattr(config, name)]
    flags = (f"--{name.replace('_', '-')}" for name in writing)
    return "\n".join(f"{flag}: does not go with --observe, under which nothing is written" for flag in flags)


CHECKS: tuple[settings.Check, ...] = (_pools, _queues, _leased, _observes_alone)
