"""Settings of the gate adapter: a part of AdmitterConfig. The policy that the core wants is derived here."""

import dataclasses

from admitter.model.hold import GatePolicy
from admitter.queuesettings import QueueSettings
from muster.settings import setting


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings(QueueSettings):
    gates: bool = setting(
        default=False, text="place pods that carry our scheduling gate, and let them go; needs an API server"
    )
    gates_before: tuple[str, ...] = setting((), text="gates of others that are lifted before ours, comma-separated")
    lease_resources: tuple[str, ...] = setting(
        (), text="resources beside nvidia.com/ that a lease is held on, comma-separated"
    )
    bind_patience_seconds: float = setting(
        60.0, text="how long a pod that was let go may stay unbound before its gang is planned anew", low=1, high=3600
    )
    strike_seconds: float = setting(
        5.0, text="how long a gang waits after its place was refused; doubles with each refusal", low=0.1, high=300
    )

    @property
    def gate_policy(self) -> GatePolicy:
        """How held pods are handled."""
        return GatePolicy(
            gates_before=frozenset(self.gates_before),
            devices=frozenset(self.lease_resources),
            bind_patience_seconds=self.bind_patience_seconds,
            strike_seconds=self.strike_seconds,
        )
