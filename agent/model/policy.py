"""What the core is told besides the planes: durations, rule modes, names. Set once at start.

Input: configuration. Output: one frozen `Policy`.

Invariant: every duration stands in DURATIONS once, with its source; a rule that needs one names its row.

Why a value: core may not import the configuration layer, and a replay must be able to give another policy.

Not here: whether a `time_scale` other than 1 is allowed (the configuration layer refuses it outside tests and demo).
"""

import dataclasses
import datetime
import enum
import types
from collections.abc import Mapping

from agent.model import xid
from muster.model import codec


class Mode(enum.StrEnum):
    """How far a rule may go (design.md section 4)."""

    OFF = "off"
    OBSERVE = "observe"
    """Reported, with no effect on admit."""
    ENFORCE = "enforce"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """How much evidence makes a fault: both conditions hold."""

    seconds: float = 0
    samples: int = 1
    """Samples in a row that show it."""
    source: str


def _of(seconds: float, source: str, samples: int = 1) -> Duration:
    return Duration(seconds=seconds, samples=samples, source=source)


DURATIONS: Mapping[str, Duration] = types.MappingProxyType(
    {
        "plugin-restart": _of(60, "faults.md A1 and section 2: plugin pod restart", 2),
        "plugin-connected": _of(360, "faults.md D3: 6 min, to rule out A1", 2),
        "kubelet-restart": _of(300, "faults.md A5: kubelet start + 5 min"),
        "kubelet-socket": _of(60, "faults.md A4: kubelet start + 60 s"),
        "alloc-flash": _of(60, "faults.md A6: kubelet age below 60 s"),
        "node-boot": _of(900, "faults.md A7, A13: boot + 15 min"),
        "plugin-waiting": _of(120, "faults.md A10: plugin age under 2 min"),
        "container-without-device": _of(60, "faults.md A8: container age of 60 s"),
        "node-status": _of(30, "faults.md section 2: 3 status periods of 10 s", 2),
        "gpu-lost": _of(30, "faults.md B2: three samples over 30 s", 3),
        "rejection-recent": _of(300, "faults.md E9: rejections of the last 5 min"),
        "rejection-burst": _of(120, "faults.md B4: three rejections in 2 min"),
        "rejection-unanswerable": _of(1800, "faults.md section 2: its longest row; where no start can be read"),
        "recovery-action": _of(30, "faults.md B5: two samples 30 s apart", 2),
        "driver-hang": _of(20, "faults.md B8: three missed deadlines of 10 s, counted from the first miss", 3),
        "fabric": _of(120, "faults.md D4: boot + 2 min"),
        "mig-empty": _of(120, "faults.md C4: 2 min", 2),
        "mig-pending": _of(120, "faults.md C6: 2 min", 2),
        "mig-reapply": _of(900, "faults.md C3: until mig-manager finishes, 15 min"),
        "mps-retry": _of(90, "faults.md F3: 3 retries of 30 s", 2),
        "container-creation": _of(60, "faults.md D6: 60 s", 2),
        "pod-teardown": _of(300, "faults.md E4: termination grace + 5 min"),
        "foreign-process": _of(30, "faults.md E5: two samples 30 s apart", 2),
        "memory-held": _of(60, "faults.md E6: 3 samples, 60 s after a pod ends", 3),
        "podresources-refused": _of(60, "faults.md H4: 60 s of refused connections"),
        "dra-slice": _of(120, "faults.md G3 and section 2: fault at 2 min", 2),
        "mig-advertise": _of(60, "faults.md C12: 60 s between creation and advertisement", 2),
        "slowdown": _of(600, "agents.md b1: sustained, over 10 min", 2),
        "shared-rename": _of(300, "faults.md F2: both names for up to 5 min after the switch"),
        "labels": _of(180, "faults.md G1: 3 min", 2),
        "maintenance-mig": _of(900, "faults.md section 2: MIG reconfiguration, 15 min"),
        "maintenance-driver": _of(1800, "faults.md section 2: driver upgrade, 30 min"),
        "maintenance-moving": _of(300, "faults.md C7: a MIG change during the last 5 min"),
        "maintenance-serving": _of(300, "faults.md C7: no change during the last 5 min"),
    }
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The core's settings."""

    time_scale: float = 1.0
    """Every duration is divided by it; anything but 1 is for tests and the demo."""
    modes: Mapping[str, Mode] = codec.mapping()
    """Rule id -> mode; a rule that is not named enforces."""
    resources: tuple[str, ...] = ()
    """Resource names that get a verdict besides nvidia.com/* and whatever joins to a GPU."""
    memory_baseline_bytes: int = 1 << 30
    """Used memory that the driver itself may hold (faults.md E6 says hundreds of MiB; per product it differs)."""
    management_processes: tuple[str, ...] = ("nv-hostengine", "dcgm", "dcgmi", "nvidia-persistenced", "nvidia-smi")
    """Known management processes, ignored by E5 while their context is tiny."""
    management_bytes: int = 128 << 20
    """What a tiny context is."""
    dra_drivers: tuple[str, ...] = ("gpu.nvidia.com",)
    """DRA drivers that give out GPUs, known by name also while their slices are away."""
    operator_pods: tuple[str, ...] = (
        "nvidia-cuda-validator", "nvidia-operator-validator", "nvidia-device-plugin-validator", "nvidia-dcgm",
    )  # fmt: skip
    """Beginnings of pod names: an operator's own pods that may hold a GPU."""
    operator_namespaces: tuple[str, ...] = ("gpu-operator", "nvidia-gpu-operator")
    """Where those pods run: elsewhere anybody may give a pod such a name."""
    diagnostic_processes: tuple[str, ...] = ("nvvs", "dcgmproftester", "nvbandwidth", "gpu_burn")
    """Beginnings of process names: tests of a GPU, which need all of it."""
    partitioner_labels: tuple[str, ...] = ("nos.nebuly.com/gpu-partitioning",)
    """Labels of nodes on which another controller cuts MIG instances on demand (faults.md C12)."""

    xids: Mapping[str, xid.Severity] = codec.mapping()
    """Xid code -> severity, in place of the table's row (agent.model.xid)."""

    def xid(self, code: int) -> xid.XidPolicy:
        """Return what an Xid says: the operator's word, or the table's row."""
        severity = self.xids.get(str(code))
        if severity is None:
            return xid.policy_of(code)
        return xid.XidPolicy(severity=severity, source="the operator's policy")

    def mode(self, rule: str) -> Mode:
        """Return the rule's mode."""
        return self.modes.get(rule, Mode.ENFORCE)

    def wait(self, name: str) -> datetime.timedelta:
        """Return a row of DURATIONS, scaled."""
        return datetime.timedelta(seconds=DURATIONS[name].seconds / self.time_scale)
