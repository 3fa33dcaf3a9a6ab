"""Put together what the reader and the admitter say about device plugins and DRA drivers.

In: the node's half (the reader's: processes and sockets) and the cluster's half (the slice's: pods, ResourceSlices). Out: the
`plugins` and `dra` planes of an Observation. Pure.

Invariant: one half alone is kept; nothing one side knows is lost because the other is silent. Where both were asked, a
plugin that has neither a process nor a pod is not on the node (faults.md A12), and a driver whose slices are published and
whose socket is not in the registry is gone (faults.md G3), unless a socket there may be its own and has not said so: the name of
the file is the driver's choice. Without the slices the `dra` plane stays unread: a driver alone
must not look like one that publishes nothing.
"""

import dataclasses

from muster.model import codec, kube
from muster.model.reading import Known, Reading, Unknown

_POD_HALF = ("pod", "pod_phase", "restarts", "crash_looping", "message", "version")
"""What only the API server knows of a plugin."""

Plugins = Reading[tuple[kube.Plugin, ...]]
Drivers = Reading[tuple[kube.DraDriver, ...]]

_YES, _NO = Known(value=True), Known(value=False)


def plugins(process_half: Plugins, pod_half: Plugins) -> Plugins:
    """Join both halves by resource prefix; one half alone is still worth having."""
    match process_half, pod_half:
        case Known(processes), Known(pods):
            return Known(_joined(processes, pods))
        case Known(), Unknown():
            return process_half
        case Unknown(), Known():
            return pod_half
        case _:
            return process_half


def _joined(processes: tuple[kube.Plugin, ...], pods: tuple[kube.Plugin, ...]) -> tuple[kube.Plugin, ...]:
    by_prefix = {plugin.resource_prefix: plugin for plugin in pods}
    joined = []
    for process in processes:
        pod = by_prefix.pop(process.resource_prefix, None)
        if pod is None and len(processes) == 1 and len(pods) == 1:
            # One of each on the node: they are the same plugin, even if a half does not know its prefix.
            pod = by_prefix.pop(pods[0].resource_prefix)
        if pod is None and not _is_there(process):
            continue
        half = {} if pod is None else {name: getattr(pod, name) for name in _POD_HALF}
        if pod is not None and not process.resource_prefix:
            half["resource_prefix"] = pod.resource_prefix
        if pod is not None:
            # What the plugin says of itself on its socket is nearer than what its pod was told.
            half["config"] = codec.freeze({**pod.config, **process.config})
        joined.append(dataclasses.replace(process, **half))
    return tuple(sorted((*joined, *by_prefix.values()), key=lambda plugin: (plugin.resource_prefix, plugin.pod)))


def _is_there(process: kube.Plugin) -> bool:
    """True if the node shows the plugin: its process, or its socket where the processes are not seen."""
    match process.process_alive:
        case Known(is_alive):
            return is_alive
        case Unknown():
            return process.socket_present == _YES or bool(process.socket_dir)


def dra(seen: Drivers, offered: Reading[kube.Dra]) -> Reading[kube.Dra]:
    """Say of each driver that publishes slices here, or answers here, whether it is there and answers."""
    match seen, offered:
        case Known(sockets), Known(plane):
            publishing = {item.driver for item in plane.slices}
            names = publishing | {driver.name for driver in sockets if driver.answering == _YES}
            drivers = {driver.name: driver for driver in plane.drivers}
            drivers |= {name: _driver(name, sockets) for name in names}
            return Known(dataclasses.replace(plane, drivers=tuple(drivers[name] for name in sorted(drivers))))
        case _:
            return offered


def _driver(name: str, sockets: tuple[kube.DraDriver, ...]) -> kube.DraDriver:
    """Return one driver's sockets as one: during a rolling update it has two, `<name>-reg` and `<name>-<uid>-reg`."""
    own = [driver for driver in sockets if driver.name == name or _may_be(driver, name)]
    if not own:
        # A socket that nobody serves is nobody's; every other one that has not said its name may be this driver's.
        unheard = [driver.answering for driver in sockets if isinstance(driver.answering, Unknown)]
        is_there: Reading[bool] = unheard[0] if unheard else _NO
        return kube.DraDriver(name=name, registration_socket_present=is_there, answering=is_there)
    answers = [driver.answering for driver in own]
    unread = [answer for answer in answers if isinstance(answer, Unknown)]
    answering: Reading[bool] = _YES if _YES in answers else (unread[0] if unread else _NO)
    return kube.DraDriver(name=name, registration_socket_present=_YES, answering=answering)


def _may_be(driver: kube.DraDriver, name: str) -> bool:
    """True if a socket that has not said its name is called like one of this driver's."""
    return driver.answering != _YES and driver.name.startswith(f"{name}-")
