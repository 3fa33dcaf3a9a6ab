"""Hardware that is fine and not advertised (faults.md A, B1, D3): who failed to promise it.

Input: openable, healthy units that no resource name promises; the plugin's process and socket; kubelet and boot times.
Output: UNDER, with the cause that the clocks point to. The numbers need no help: what is not in GA is not counted.

Invariant: says UNDER only for units that the driver shows and every check passes; the kubelet's side must have been read.

Why causes by clock: a restarted plugin, a restarted kubelet and a booting node look the same in GA (empty); which of
them it is decides how long it is normal (faults.md P5).

Not here: MIG units whose plugin promises the old geometry (mig.py): they are unadvertised for that reason.
"""

import datetime
from collections.abc import Iterator

from agent.core import allocators, shape
from agent.core.context import Context, after, count_of, named
from agent.core.rules import devices, layout, mig, sharing
from agent.model.finding import Rule, Suspicion
from agent.model.snapshot import ResourceView, Unit
from muster.model import kube
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import DeviceState, Verdict
from muster.model.vocabulary import Reason, Remedy


def _under(rule: str, cause: str, reason: Reason, remedy: Remedy, wait: str = "") -> Rule:
    return Rule(
        id=rule,
        cause=cause,
        verdict=Verdict.UNDER,
        reason=reason,
        remedy=remedy,
        wait=wait,
        clears_when="GetAllocatableResources names the devices",
    )


_RESTART = Remedy.RESTART_DEVICE_PLUGIN
DOWN_IN_GRACE = _under("A1", "PluginDownInGrace", Reason.PLUGIN_NOT_REGISTERED, _RESTART, "plugin-restart")
DOWN = _under("A2", "PluginDownAfterGrace", Reason.PLUGIN_NOT_REGISTERED, _RESTART)
UNREGISTERED = _under("A3", "PluginRunningYetUnregistered", Reason.PLUGIN_NOT_REGISTERED, _RESTART)
SOCKET_MISSED = _under("A4", "KubeletSocketRecreatedUnnoticed", Reason.PLUGIN_NOT_REGISTERED, _RESTART)
KUBELET_RESTARTED = _under("A5", "KubeletRestartZeroWindow", Reason.KUBELET_RESTARTED, Remedy.WAIT)
WRONG_ROOT = _under("A9", "WrongKubeletRoot", Reason.PLUGIN_NOT_REGISTERED, Remedy.INVESTIGATE)
WAITING = _under("A10", "NoDevicesWaitingForever", Reason.PLUGIN_NOT_REGISTERED, _RESTART)
LATE = _under("A11", "LateGpusMissed", Reason.NOT_ADVERTISED, _RESTART)
REPELLED = _under("A12", "PluginRepelledByTaint", Reason.PLUGIN_NOT_REGISTERED, Remedy.INVESTIGATE, "plugin-restart")
STARTING = _under("A13", "NodeReadyBeforeGpu", Reason.NODE_STARTING, Remedy.WAIT)
NOT_IN_SLICES = _under(
    "dra-unpublished", "DraDevicesUnpublished", Reason.NOT_ADVERTISED, Remedy.RESTART_DEVICE_PLUGIN, "dra-slice"
)
SLICED = _under("C12", "ThirdPartySlicer", Reason.NOT_ADVERTISED, _RESTART, "mig-advertise")
STICKY = _under("B1", "XidStickyUnhealthy", Reason.NOT_ADVERTISED, _RESTART)
EVENTLESS = _under("B11", "EventUnsupportedGpu", Reason.NOT_ADVERTISED, Remedy.INVESTIGATE)
MPS_AWAY = _under("F3", "MpsDaemonNotReady", Reason.PLUGIN_NOT_REGISTERED, Remedy.INVESTIGATE, "mps-retry")
PLUGIN_BLIND = _under("D3", "PluginContainerLostGpu", Reason.NOT_ADVERTISED, _RESTART, "plugin-connected")

RULES = (
    DOWN_IN_GRACE, DOWN, UNREGISTERED, SOCKET_MISSED, KUBELET_RESTARTED, WRONG_ROOT, WAITING, LATE, REPELLED, STARTING,
    SLICED, NOT_IN_SLICES, STICKY, EVENTLESS, MPS_AWAY, PLUGIN_BLIND,
)  # fmt: skip


def find(context: Context) -> Iterator[Suspicion]:
    """Yield a suspicion for every resource name that should carry units it does not advertise."""
    snapshot = context.snapshot
    if isinstance(snapshot.nvml, Unknown) or isinstance(snapshot.allocatable, Unknown):
        return
    missing = unadvertised(context)
    if not missing:
        return
    homeless = list(missing)
    for view in snapshot.resources:
        carried = tuple(unit for unit in missing if is_home(view, unit, context))
        if carried:
            homeless = [unit for unit in homeless if unit not in carried]
            yield _suspicion(context, view, carried)
    if homeless:
        yield _suspicion(context, None, tuple(homeless))


def unadvertised(context: Context) -> tuple[Unit, ...]:
    """Return the healthy units that nobody promises and no other finding explains."""
    snapshot = context.snapshot
    promised = snapshot.advertised_uuids()
    parents = {unit.parent for unit in snapshot.units if unit.uuid in promised and not unit.is_mig}
    if any(mig.stale_ids(context, view) for view in snapshot.resources):
        return ()  # the plugin promises an older geometry: C1 and C11 say so
    if snapshot.mig_strategy == "single" and mig.empty_gpus(snapshot):
        return ()  # the plugin gives up on the whole node: C4 says so
    if snapshot.mig_strategy == "none":
        promised |= {unit.uuid for unit in snapshot.units if unit.is_mig}
    return tuple(
        unit
        for unit in snapshot.units
        if unit.uuid not in promised
        and unit.parent not in parents
        and (unit.is_mig or not shape.is_in_mig_mode(unit.gpu))
        and devices.of_unit(unit, snapshot, context.policy).state in (DeviceState.HEALTHY, DeviceState.DEGRADED)
    )


def is_home(view: ResourceView, unit: Unit, context: Context) -> bool:
    """True if the unit's absence is this name's: the plugin would offer it there, or the name carries such units."""
    if any(device.unit is not None and device.unit.is_mig == unit.is_mig for device in view.ids()):
        return shape.fits(view.name, unit)
    return shape.would_carry(view.name, unit, context.snapshot.mig_strategy)


def _suspicion(context: Context, view: ResourceView | None, units: tuple[Unit, ...]) -> Suspicion:
    rule, until = _cause(context, view, units)
    uuids = tuple(sorted(unit.uuid for unit in units))
    plugin = "; ".join(_describe(item) for item in context.snapshot.plugins) or "no plugin is known on the node"
    return Suspicion(
        rule=rule,
        resource=view.name if view is not None else "",
        devices=uuids,
        units=len(uuids),
        until=until,
        detail=f"{plugin}; healthy and not advertised: {named(uuids, 2)}",
    )


def _describe(plugin: kube.Plugin) -> str:
    alive = {True: "alive", False: "gone", None: "not known"}[_flag(plugin.process_alive)]
    socket = {True: "present", False: "missing", None: "not known"}[_flag(plugin.socket_present)]
    return f"plugin process {alive}, socket {socket}"


def _flag(reading: Reading[bool]) -> bool | None:
    match reading:
        case Known(value):
            return value
        case Unknown():
            return None


Cause = tuple[Rule, datetime.datetime | None]


def _cause(context: Context, view: ResourceView | None, units: tuple[Unit, ...]) -> Cause:
    """Return the rule, and until when the state is normal."""
    if (view is not None and view.is_dra) or allocators.is_dra_alone(context.snapshot, context.policy):
        return NOT_IN_SLICES, context.boot_end()
    if all(unit.is_mig for unit in units) and layout.is_partitioned_on_demand(context):
        return SLICED, None  # whoever cut them bounces the plugin later
    if view is not None and view.ids():
        return _cause_of_part(context, view, len(units))
    if sharing.is_mps_missing(context.snapshot):
        return MPS_AWAY, None
    if not context.snapshot.api_server:
        return _cause_of_zero(context)
    if view is None:
        return _cause_of_absent_key(context)
    capacity = count_of(view.capacity)
    if capacity is not None and capacity > 0:
        return _cause_of_zero_allocatable(context, units)
    return _cause_of_zero(context)


def _cause_of_part(context: Context, view: ResourceView, units: int) -> Cause:
    """Some units of the name are advertised, others are not."""
    capacity, allocatable = count_of(view.capacity), count_of(view.allocatable)
    if capacity is not None and allocatable is not None and capacity - allocatable >= units:
        return STICKY, None  # the kubelet counts them out as unhealthy
    return LATE, context.boot_end()


def _cause_of_zero_allocatable(context: Context, units: tuple[Unit, ...]) -> Cause:
    """N/0: the plugin is gone, or it is there and calls everything unhealthy."""
    if context.kubelet_end("alloc-flash") is not None:
        return KUBELET_RESTARTED, context.kubelet_end("kubelet-restart")  # the old Node status is still there (A6)
    if all(unit.gpu.events_supported == Known(()) for unit in units):
        return EVENTLESS, None
    if any(_flag(plugin.connected) is True for plugin in context.snapshot.plugins):
        return PLUGIN_BLIND, None
    if _is_plugin_away(context):
        return REPELLED, None
    return DOWN_IN_GRACE, None


def _cause_of_zero(context: Context) -> Cause:
    """0/0, or a GA without the name and no Node to compare with."""
    end = context.kubelet_end("kubelet-restart")
    if end is not None and _is_older_than_kubelet(context, socket=False) and _is_kubelet_older(context):
        return SOCKET_MISSED, None
    if end is not None and not _is_dead(context):
        return KUBELET_RESTARTED, end
    if not context.snapshot.api_server:
        return DOWN_IN_GRACE, None  # without a Node N/0 and 0/0 look the same: the earlier clock decides
    boot_end = context.boot_end()
    if boot_end is not None:
        return STARTING, boot_end
    if _is_older_than_kubelet(context, socket=False):
        return SOCKET_MISSED, None
    if _is_older_than_kubelet(context, socket=True):
        return UNREGISTERED, None
    if _is_plugin_away(context):
        return REPELLED, None
    return _cause_of_silence(context, DOWN)


def _cause_of_absent_key(context: Context) -> Cause:
    """No plane knows a name that could carry the units."""
    boot_end = context.boot_end()
    if boot_end is not None:
        return STARTING, boot_end
    if any(plugin.socket_dir for plugin in context.snapshot.plugins):
        return WRONG_ROOT, None
    return (
        (REPELLED, None)
        if _is_plugin_away(context)
        else _cause_of_silence(context, DOWN if _is_dead(context) else WAITING)
    )


def _is_kubelet_older(context: Context) -> bool:
    """True once the kubelet has been up for longer than a plugin needs to notice its new socket."""
    return not context.is_younger(context.snapshot.age_of(context.snapshot.kubelet_started_at), "kubelet-socket")


def _is_older_than_kubelet(context: Context, *, socket: bool) -> bool:
    """True if a living plugin started before the kubelet, and its socket is there or not."""
    match context.snapshot.kubelet_started_at:
        case Known(kubelet):
            return any(
                _flag(plugin.process_alive) is not False
                and _flag(plugin.socket_present) is socket
                and isinstance(plugin.started_at, Known)
                and plugin.started_at.value < kubelet
                for plugin in context.snapshot.plugins
            )
        case Unknown():
            return False


def _is_dead(context: Context) -> bool:
    plugins = context.snapshot.plugins
    return bool(plugins) and all(_flag(plugin.process_alive) is False for plugin in plugins)


def _is_plugin_away(context: Context) -> bool:
    """True if the plugins were read and none is on the node."""
    return isinstance(context.snapshot.observation.plugins, Known) and not context.snapshot.plugins


def _cause_of_silence(context: Context, otherwise: Rule) -> Cause:
    """A living plugin that has not registered: it may still be starting, or waits for ever (faults.md A10)."""
    for plugin in context.snapshot.plugins:
        if _flag(plugin.process_alive) is not True:
            continue
        match plugin.started_at:
            case Known(started) if context.is_younger(context.now - started, "plugin-waiting"):
                return WAITING, after(started, context.wait("plugin-waiting"))
            case _ if "no devices" in plugin.message.lower():
                return WAITING, None
            case _:
                pass
    return otherwise, None
