"""A DRA driver that is gone while its slices are still published (faults.md G3).

Input: drivers and slices. Output: the driver's resource promises devices that nobody would prepare.

Invariant: only a driver that was looked for and not found, or that does not answer, is called dead; one that nobody looked
at is not.
"""

from collections.abc import Iterator

from agent.core.context import Context
from agent.model.finding import Effect, Rule, Suspicion
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

SLICE_WITHOUT_DRIVER = Rule(
    id="G3",
    cause="DraSliceOutlivesDriver",
    verdict=Verdict.OVER,
    effect=Effect.BLOCK,
    reason=Reason.PLUGIN_NOT_REGISTERED,
    remedy=Remedy.RESTART_DEVICE_PLUGIN,
    wait="dra-slice",
    clears_when="the driver's registration socket is there and answers, or its slices are gone",
)

RULES = (SLICE_WITHOUT_DRIVER,)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield every DRA resource whose driver is dead."""
    match context.snapshot.observation.dra:
        case Known(dra):
            no = Known(False)  # noqa: FBT003
            dead = {item.name for item in dra.drivers if no in (item.registration_socket_present, item.answering)}
        case Unknown():
            return
    for view in context.snapshot.resources:
        if view.is_dra and view.name in dead and view.ids():
            yield Suspicion(
                rule=SLICE_WITHOUT_DRIVER,
                resource=view.name,
                units=len(view.ids()),
                detail=f"{len(view.ids())} devices in slices, and the driver does not answer",
            )
