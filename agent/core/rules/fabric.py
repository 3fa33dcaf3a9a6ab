"""The NVLink fabric of a board (faults.md D4): without it every CUDA start fails while all tools look healthy.

Input: each GPU's fabric state. Output: advertised ids of GPUs whose fabric is not up, which are bad.

Invariant: only a board that has a fabric can lack it. NOT_SUPPORTED says nothing, and a state that could not be read goes
to `unverified`.
"""

import datetime
from collections.abc import Iterator

from agent.core.context import Context, after
from agent.model import planes
from agent.model.finding import Effect, Rule, Suspicion
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

DOWN = Rule(
    id="D4",
    cause="FabricManagerDown",
    verdict=Verdict.OVER,
    effect=Effect.BAD,
    reason=Reason.FABRIC_NOT_READY,
    remedy=Remedy.START_FABRIC_MANAGER,
    clears_when="the GPU's fabric state is completed with status success",
)

RULES = (DOWN,)

_SUCCESS = ("", "success", "nvml_success")


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a suspicion for every advertised id whose GPU waits for its fabric."""
    until = _end_of_registration(context)
    for view in context.snapshot.resources:
        for device in view.ids():
            problem = problem_of(device.unit.gpu) if device.unit is not None else ""
            if problem:
                yield Suspicion(
                    rule=DOWN,
                    resource=view.name,
                    subject=device.id,
                    ids=(device.id,),
                    devices=(device.uuid,),
                    units=1,
                    until=until,
                    detail=problem,
                )


def problem_of(gpu: planes.Gpu) -> str:
    """Return what is wrong with the GPU's fabric; empty where it is up, or the board has none."""
    match gpu.fabric:
        case Unknown():
            return ""
        case Known(fabric):
            pass
    if fabric.state is planes.FabricState.NOT_SUPPORTED:
        return ""
    if fabric.state is not planes.FabricState.COMPLETED:
        return f"fabric state {fabric.state.value}"
    match fabric.status:
        case Known(status) if status.lower() not in _SUCCESS:
            return f"fabric status {status[:80]}"
        case _:
            return ""


def _end_of_registration(context: Context) -> datetime.datetime | None:
    """Return boot + 2 min while it lasts: the fabric registers within seconds to 30 s of a boot."""
    match context.snapshot.observation.boot:
        case Known(boot) if context.is_younger(context.snapshot.boot_age, "fabric"):
            return after(boot.at, context.wait("fabric"))
        case _:
            return None
