"""The profiles in which the DaemonSet can be deployed, and what the agent sees in each.

In: an observation as the full profile takes it. Out: the same moment as a profile with less privilege would see it.

Invariant: a plane that a profile cannot read is what the running agent would have there: Unknown with its reason, or
absent where nobody would send it. It is never an empty list in place of an unread one.

Not here: what it costs (captures.py replays, verdicts.py compares).
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

from agent.model import planes, privilege
from agent.model.planes import Observation
from agent.model.privilege import Privilege
from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to deploy."""

    name: str
    what: str
    """For people: how it is deployed."""
    lacks: frozenset[Privilege]


def _profile(name: str, what: str, *lacks: Privilege) -> Profile:
    return Profile(name=name, what=what, lacks=frozenset(lacks))


PROFILES = (
    _profile("full", "`daemonset/base`: agent, privileged reader with the host's process ids, an admitter with a cluster"),
    _profile(
        "no-host-pid", "`daemonset/profiles/no-host-pid`: the reader is privileged, `hostPID` is not allowed",
        Privilege.HOST_PID,
    ),
    _profile(
        "injection-host-pid",
        "`daemonset/profiles/injection-host-pid`: devices are injected into the reader; `hostPID` and the host's files stay",
        Privilege.KERNEL_LOG, Privilege.MIG_MONITOR,
    ),
    _profile(
        "injection",
        "`daemonset/profiles/injection`: devices are injected into the reader, and it gets nothing else of the host",
        Privilege.KERNEL_LOG, Privilege.MIG_MONITOR, Privilege.HOST_PID, Privilege.HOST_FILES,
    ),
    _profile("no-checkpoint", "`daemonset/profiles/no-checkpoint`: the agent has no `device-plugins` folder", Privilege.CHECKPOINT),
    _profile("no-api-server", "`daemonset/profiles/no-api-server`: agents alone, nobody sends Node and Pods", Privilege.NODE_SLICE),
    _profile(
        "least",
        "`daemonset/profiles/least`: `injection`, `no-checkpoint` and `no-api-server` together",
        Privilege.KERNEL_LOG, Privilege.MIG_MONITOR, Privilege.HOST_PID, Privilege.HOST_FILES, Privilege.CHECKPOINT,
        Privilege.NODE_SLICE,
    ),
)  # fmt: skip
"""The first one is what the others are compared with."""


_NO_HOST_VIEW = Unknown("NoHostPidView")
_NO_PLUGIN = kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(False))  # noqa: FBT003


def seen_by(lacks: frozenset[Privilege], observation: Observation) -> Observation:
    """Return the observation as it is without these privileges."""
    for missing in sorted(lacks):
        observation = _WITHOUT[missing](observation)
    if {Privilege.HOST_PID, Privilege.NODE_SLICE} <= lacks:
        observation = dataclasses.replace(observation, plugins=_NO_HOST_VIEW)  # neither half of a plugin is known
    return observation


def has_api_server(lacks: frozenset[Privilege], capture_has: bool) -> bool:  # noqa: FBT001 -- what the capture says
    """Return whether the admitter's welcome would name an API server."""
    return capture_has and Privilege.NODE_SLICE not in lacks


def blank(value: Any, path: tuple[str, ...], unread: Unknown) -> Any:
    """Return the value with the field at the path taken out, through readings and lists.

    A field that is no reading has nothing else to say "nobody looked" with than its default.
    """
    match value:
        case Known(inner):
            return unread if not path else Known(blank(inner, path, unread))
        case Unknown():
            return unread if not path else value
        case tuple() if path:
            return tuple(blank(item, path, unread) for item in value)
        case _ if path:
            inner = getattr(value, path[0])
            return dataclasses.replace(value, **{path[0]: blank(inner, path[1:], unread)})
        case _:
            return type(value)() if isinstance(value, tuple | str) else codec.EMPTY


def _fields(missing: Privilege, unread: Unknown) -> Callable[[Observation], Observation]:
    """Return what takes out every field that a privilege is needed for."""
    paths = [tuple(path.split(".")) for path, needed in privilege.OF_FIELD.items() if needed is missing]

    def without(observation: Observation) -> Observation:
        for path in paths:
            observation = blank(observation, path, unread)
        return observation

    return without


def _without_host_files(observation: Observation) -> Observation:
    """The device files that the reader sees are its own: injected when it started, and there whatever the host lost."""
    nodes = observation.device_nodes
    match nodes:
        case Known(items):
            nodes = Known(tuple(dataclasses.replace(node, present=True, detail="") for node in items))
        case Unknown():
            pass
    observation = _fields(Privilege.HOST_FILES, Unknown("Unreadable"))(observation)
    return dataclasses.replace(observation, device_nodes=nodes)


def _without_mig_monitor(observation: Observation) -> Observation:
    """The mode is readable; instances that were not given to the container are refused, and the reader says so."""

    def refused(gpu: planes.Gpu) -> planes.Gpu:
        match gpu.mig:
            case Known(mig) if mig.current:
                return dataclasses.replace(gpu, mig=Unknown("NO_PERMISSION"))
            case _:
                return gpu

    match observation.nvml:
        case Known(nvml):
            devices = tuple(refused(gpu) for gpu in nvml.devices)
            return dataclasses.replace(observation, nvml=Known(dataclasses.replace(nvml, devices=devices)))
        case Unknown():
            return observation


def _without_slice(observation: Observation) -> Observation:
    """Nobody sends anything: the planes are absent, and of a plugin only the process half is known."""
    plugins = observation.plugins
    match plugins:
        case Known(halves):
            # The reader always answers for the one plugin it looks for, there or not.
            plugins = Known(tuple(_process_half(plugin) for plugin in halves) or (_NO_PLUGIN,))
        case Unknown():
            pass
    return dataclasses.replace(
        observation,
        plugins=plugins,
        dra=NOT_COLLECTED,
        desired_mig=NOT_COLLECTED,
        node_object=NOT_COLLECTED,
        pods=NOT_COLLECTED,
        rejections=(),
        features=codec.EMPTY,
    )


def _process_half(plugin: kube.Plugin) -> kube.Plugin:
    return kube.Plugin(
        resource_prefix=plugin.resource_prefix,
        process_alive=plugin.process_alive,
        started_at=plugin.started_at,
        socket_present=plugin.socket_present,
        socket_dir=plugin.socket_dir,
        connected=plugin.connected,
        resources=plugin.resources,
    )


_WITHOUT: Mapping[Privilege, Callable[[Observation], Observation]] = types.MappingProxyType(
    {
        Privilege.GPU_DEVICES: _fields(Privilege.GPU_DEVICES, Unknown("LIBRARY_NOT_FOUND")),
        Privilege.MIG_MONITOR: _without_mig_monitor,
        Privilege.HOST_PID: _fields(Privilege.HOST_PID, _NO_HOST_VIEW),
        Privilege.KERNEL_LOG: _fields(Privilege.KERNEL_LOG, Unknown("Unreadable")),
        Privilege.HOST_FILES: _without_host_files,
        Privilege.POD_RESOURCES: _fields(Privilege.POD_RESOURCES, Unknown("DirectoryMissing")),
        Privilege.CHECKPOINT: _fields(Privilege.CHECKPOINT, Unknown("NotFound")),
        Privilege.NODE_SLICE: _without_slice,
    }
)
