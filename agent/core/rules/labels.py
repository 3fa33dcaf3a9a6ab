"""Labels that describe an earlier machine (faults.md G1). A warning: labels are never evidence of capacity.

Input: gpu-feature-discovery's count label and NVML. Output: a note on the node.

Invariant: the count label counts parent GPUs, also when all of them are in MIG mode (faults.md N2).
"""

from collections.abc import Iterator

from agent.core.context import Context
from agent.model.finding import Rule, Suspicion
from muster.model.reading import Known
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

OUT_OF_STEP = Rule(
    id="G1",
    cause="LabelsOutOfStep",
    verdict=Verdict.OK,
    reason=Reason.API_OBJECT_STALE,
    remedy=Remedy.INVESTIGATE,
    wait="labels",
    clears_when="nvidia.com/gpu.count is the number of GPUs that NVML lists",
)

RULES = (OUT_OF_STEP,)

_COUNT = "nvidia.com/gpu.count"


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a note when the count label is another one than NVML's."""
    snapshot = context.snapshot
    match snapshot.observation.node_object, snapshot.nvml:
        case Known(node), Known():
            text = node.labels.get(_COUNT, "")
        case _:
            return
    if text.isascii() and text.isdigit() and text.lstrip("0") != str(len(snapshot.gpus)).lstrip("0"):
        yield Suspicion(rule=OUT_OF_STEP, detail=f"{_COUNT}={text[:20]}, NVML lists {len(snapshot.gpus)}")
