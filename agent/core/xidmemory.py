"""The fatal Xids of this boot, for as long as nobody has answered them: what NVML and the kernel log may not tell twice.

Input: the Xids that the planes tell now, and those remembered. Output: both together, each once; what to remember.

Invariant: nothing latches, and a restart of the reader, or a full log, makes no GPU whole. What is remembered ends with the
boot, with the driver's recovery action once it is readable and none, and for an instance also with the instance.

Why only what the policy calls fatal: the rest is a note, and notes may fade with who told them.
"""

from collections.abc import Mapping

from agent.core import kernel_log
from agent.model import planes, xid
from agent.model.history import History, RememberedXid
from agent.model.policy import Policy
from agent.model.snapshot import Snapshot
from muster.model.reading import Known

MAX_REMEMBERED = 256
"""Of a node: 16 GPUs with as many kinds each. The oldest kinds go first, those of instances before those of whole GPUs."""

Told = Mapping[str, tuple[planes.Xid, ...]]
"""UUID of the GPU -> its Xids, oldest first."""


def standing(told: Told, observation: planes.Observation, history: History) -> Told:
    """Return what is told now, and what was told before in this boot."""
    if isinstance(observation.boot, Known) and observation.boot.value.id != history.boot_id:
        return told
    result = dict(told)
    for item in history.xids:
        own = result.get(item.gpu, ())
        if not any(kernel_log.is_same(item.xid, one) for one in own):
            result[item.gpu] = tuple(sorted((*own, item.xid), key=lambda one: (one.at, one.code, repr(one))))
    return result


def remembered(snapshot: Snapshot, policy: Policy) -> tuple[RememberedXid, ...]:
    """Return the last fatal Xid of each kind that is still unanswered, sorted."""
    by_uuid = {gpu.uuid: gpu for gpu in snapshot.gpus}
    last = {
        (uuid, event.code, event.gi, event.ci): RememberedXid(gpu=uuid, xid=event)
        for uuid, events in snapshot.xids.items()
        for event in events
        if policy.xid(event.code).severity is xid.Severity.FATAL and not _is_answered(event, by_uuid.get(uuid))
    }
    kept = sorted(last.values(), key=lambda item: (item.xid.gi is None, item.xid.at, repr(item)))[-MAX_REMEMBERED:]
    return tuple(sorted(kept, key=repr))


def _is_answered(event: planes.Xid, gpu: planes.Gpu | None) -> bool:
    if gpu is None:
        return False
    if gpu.recovery_action == Known(planes.RecoveryAction.NONE):
        return True
    match gpu.mig:
        case Known(mig) if event.gi is not None:
            return not mig.current or event.gi not in {instance.gi for instance in mig.instances}
        case _:
            return False
