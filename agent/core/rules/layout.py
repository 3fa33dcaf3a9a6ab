"""The MIG layout that somebody asked for, once the tool says it failed (faults.md C8).

Input: the desired layout, the tool's state label, NVML's geometry. Output: GPUs that are cut otherwise than asked.

Invariant: compared only once the state is `failed`; before, the tool is at work. A node that a dynamic partitioner owns is
never compared with it (faults.md C12).
"""

from collections.abc import Iterator, Mapping

from agent.core import shape
from agent.core.context import Context, named
from agent.model import planes
from agent.model.finding import Effect, Rule, Suspicion
from muster.model import kube
from muster.model.reading import Known
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

HALF_APPLIED = Rule(
    id="C8",
    cause="HalfAppliedGeometry",
    verdict=Verdict.WRONG_SHAPE,
    reason=Reason.MIG_MISMATCH,
    remedy=Remedy.APPLY_MIG_LAYOUT,
    clears_when="every GPU has the layout that mig.config asks for, or its state is not failed",
)
HALF_APPLIED_SINGLE = Rule(
    id="C8-single",
    cause="HalfAppliedGeometry",
    verdict=Verdict.WRONG_SHAPE,
    effect=Effect.BLOCK,
    reason=Reason.MIG_MISMATCH,
    remedy=Remedy.APPLY_MIG_LAYOUT,
    clears_when="every GPU has the layout that mig.config asks for, or its state is not failed",
)

RULES = (HALF_APPLIED, HALF_APPLIED_SINGLE)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield the GPUs that a failed change of layout left behind."""
    snapshot = context.snapshot
    match snapshot.observation.desired_mig, snapshot.observation.node_object:
        case Known(desired), Known(node) if node.labels.get("nvidia.com/mig.config.state") == "failed":
            pass
        case _:
            return
    if is_partitioned_on_demand(context):
        return
    other = tuple(gpu.uuid for gpu in snapshot.gpus if not _is_as_desired(gpu, desired))
    if not other:
        return
    detail = f"mig.config {desired.name[:60]} failed; cut otherwise: {named(other)}"
    if snapshot.mig_strategy == "single" and snapshot.resource(shape.WHOLE) is not None:
        yield Suspicion(rule=HALF_APPLIED_SINGLE, resource=shape.WHOLE, devices=other, detail=detail)
    else:
        yield Suspicion(rule=HALF_APPLIED, devices=other, detail=detail)


def is_partitioned_on_demand(context: Context) -> bool:
    """True if the Node says that another controller cuts its GPUs as pods ask for it (faults.md C12)."""
    match context.snapshot.observation.node_object:
        case Known(node):
            return any(key in node.labels for key in context.policy.partitioner_labels)
        case _:
            return False


def asks_for_instances(gpu: planes.Gpu, desired: kube.DesiredMig) -> bool:
    """True if the layout wants this GPU cut, whichever of its entries is meant."""
    match gpu.index:
        case Known(index):
            layouts = _layouts_of(index, desired)
            return bool(layouts) and all(layouts)
        case _:
            return False


def _is_as_desired(gpu: planes.Gpu, desired: kube.DesiredMig) -> bool:
    """True if the GPU has the layout, or the layout says nothing about it, or its geometry could not be read."""
    match gpu.mig, gpu.index:
        case Known(mig), Known(index):
            layouts = _layouts_of(index, desired)
        case _:
            return True
    return not layouts or any(_is_cut_as(mig, wanted) for wanted in layouts)


def _is_cut_as(mig: planes.Mig, wanted: Mapping[str, int]) -> bool:
    actual: dict[str, int] = {}
    for instance in mig.instances if mig.current else ():
        profile = shape.spelled(instance.profile)
        key = next((name for name in wanted if shape.is_of_profile(name, instance)), profile)
        actual[key] = actual.get(key, 0) + 1
    return actual == dict(wanted)


def _layouts_of(index: int, desired: kube.DesiredMig) -> tuple[Mapping[str, int], ...]:
    """Return every layout that may be meant for a GPU: entries for several products stand side by side, for all GPUs each."""
    return tuple(
        {shape.spelled(name): count for name, count in entry.profiles.items() if count > 0}
        for entry in desired.layout
        if entry.gpus == "all" or str(index) in {part.strip() for part in entry.gpus.strip("[]").split(",")}
    )
