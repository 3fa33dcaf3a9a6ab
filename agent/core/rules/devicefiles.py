"""Device files of the driver that a container needs and the host lacks (design.md section 3: BLOCKED).

Input: the device_nodes plane. Output: a control file that is missing blocks every start; a GPU's own file makes that GPU's
ids bad.

Invariant: only a file that was looked for and is not what it should be counts; an unread plane accuses nobody. uvm-tools is
for debuggers and profilers: no start needs it.

Why by enumeration index here: the file's name has nothing else in it. A wrong pick names the wrong GPU and leaves the
numbers right.
"""

import re
from collections.abc import Iterator

from agent.core.context import Context, named
from agent.model import planes
from agent.model.finding import Effect, Rule, Suspicion
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

CONTROL_MISSING = Rule(
    id="device-files",
    cause="DeviceFilesMissing",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.DRIVER_NOT_LOADED,
    remedy=Remedy.RELOAD_DRIVER,
    clears_when="the driver's control files are character devices with its major number",
)
GPU_MISSING = Rule(
    id="device-file-gpu",
    cause="DeviceFilesMissing",
    verdict=Verdict.OVER,
    effect=Effect.BAD,
    reason=Reason.DRIVER_NOT_LOADED,
    remedy=Remedy.RELOAD_DRIVER,
    clears_when="the GPU's device file is a character device with the driver's major number",
)

RULES = (CONTROL_MISSING, GPU_MISSING)

_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_GPU = re.compile(r"/dev/nvidia(?P<index>\d{1,9})")


def find(context: Context) -> Iterator[Suspicion]:
    """Yield what missing device files do to each resource."""
    match context.snapshot.observation.device_nodes, context.snapshot.nvml:
        case Known(nodes), Known():
            missing = {node.path: node.detail or "missing" for node in nodes if not node.present}
        case _:
            return
    control = [f"{path}: {missing[path]}" for path in _CONTROL if path in missing]
    by_index = {int(match["index"]): path for path in missing if (match := _GPU.fullmatch(path))}
    # Where nothing is promised it is said of the node: it may be why the plugin does not come back.
    promising = [view.name for view in context.snapshot.resources if view.ids()] or [""]
    for name in promising if control else ():
        yield Suspicion(rule=CONTROL_MISSING, resource=name, until=context.boot_end(), detail=named(control))
    for view in context.snapshot.resources:
        for device in view.ids():
            path = by_index.get(_index(device.unit.gpu)) if device.unit is not None else None
            if path is not None:
                yield Suspicion(
                    rule=GPU_MISSING,
                    resource=view.name,
                    subject=device.id,
                    ids=(device.id,),
                    devices=(device.uuid,),
                    units=1,
                    until=context.boot_end(),
                    detail=f"{path}: {missing[path]}",
                )


def _index(gpu: planes.Gpu) -> int:
    match gpu.index:
        case Known(index):
            return index
        case Unknown():
            return -1
