"""What the GPU stack on a node was told: how its device plugin shares GPUs, and how its MIG manager should cut them.

In: settings and mounted ConfigMaps of the pods of device plugin and MIG manager, the node's labels, the ConfigMaps' documents.
Out: a plugin's `config`, and the node's DesiredMig, in the words of the capture.

Invariant: only what was said. A default of the plugin, a document that could not be read, a field of another form: none of them
makes an entry, so that an agent falls back to what labels and devices show.

Entries of a layout are applied in their order, each to the GPUs that its device filter and its indices match, so that for one GPU the
last one counts (mig-parted's assert). Why those with a filter stand beside what they would replace: whether it matches
depends on the product, which only the node knows; profile names tell them apart there (agent/core/rules/layout.py).

Not here: fetching (sources/configmaps.py), and which pods these are (sources/slimpod.py).
"""

import posixpath
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from admitter.model.cluster import Told
from muster.model import codec, kube

Documents: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""(namespace, name) of a ConfigMap -> its keys, each parsed."""

NOTHING: Documents = types.MappingProxyType({})

_PLUGIN_LABEL = "nvidia.com/device-plugin.config"
_OF_VARIABLE = {
    "migStrategy": "MIG_STRATEGY",
    "deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "passDeviceSpecs": "PASS_DEVICE_SPECS",
    "DP_DISABLE_HEALTHCHECKS": "DP_DISABLE_HEALTHCHECKS",
}
"""Name in a capture -> the plugin's variable; a flag stands for its variable (slimpod.py)."""
_OF_FILE = {
    "migStrategy": ("flags", "migStrategy"),
    "deviceListStrategy": ("flags", "plugin", "deviceListStrategy"),
    "passDeviceSpecs": ("flags", "plugin", "passDeviceSpecs"),
}
_SHARING = (("mps", "mps"), ("timeSlicing", "timeSlicing"))
_MOST_TEXT = 256
_MOST_LAYOUTS = 64
_MOST_PROFILES = 32
_ALL = frozenset(range(64))
"""Indices of a node's GPUs: four times what any node has."""


def plugin_config(namespace: str, told: Told, labels: Mapping[str, str], documents: Documents) -> Mapping[str, str]:
    """Return what a device plugin was told; what its flags and variables say stands above its file."""
    document = _document(namespace, told, labels, documents)
    found = dict(_from_file(document)) if isinstance(document, Mapping) else {}
    for name, variable in _OF_VARIABLE.items():
        if value := told.settings.get(variable):
            found[name] = value[:_MOST_TEXT]
    return codec.freeze(found) if found else codec.EMPTY


def layout(name: str, namespace: str, told: Told, documents: Documents) -> tuple[kube.MigLayout, ...]:
    """Return the layout of this name in the MIG manager's file; empty where it is not known."""
    document = _document(namespace, told, codec.EMPTY, documents)
    entries = _at(document, ("mig-configs", name))
    return tuple(_layouts(entries[:_MOST_LAYOUTS]))[::-1] if isinstance(entries, list) else ()


def wanted(namespace: str, told: Told) -> frozenset[tuple[str, str]]:
    """Return the ConfigMaps that say what a pod was told: those that hold a file its settings name."""
    files = [told.settings.get("CONFIG_FILE", ""), *([] if _folder(told) is None else [f"{_folder(told)}/x"])]
    return frozenset((namespace, name) for file in files if (name := _mounted(told, file)) is not None)


def _document(namespace: str, told: Told, labels: Mapping[str, str], documents: Documents) -> Any:
    """Return the parsed file that the pod reads; None where it is not known."""
    file = told.settings.get("CONFIG_FILE", "")
    name = _mounted(told, file)
    if name is not None:
        return documents.get((namespace, name), codec.EMPTY).get(posixpath.basename(file))
    folder = _folder(told)
    name = _mounted(told, f"{folder}/x") if folder is not None else None
    if name is None:
        return None
    return _chosen(documents.get((namespace, name), codec.EMPTY), told, labels)


def _chosen(choices: Mapping[str, Any], told: Told, labels: Mapping[str, str]) -> Any:
    """Return what the plugin's config manager chooses: the node's label, its default, or the only one there is."""
    label = labels.get(told.settings.get("NODE_LABEL") or _PLUGIN_LABEL, "")
    key = label or told.settings.get("DEFAULT_CONFIG", "")
    if key:
        return choices.get(key)
    return next(iter(choices.values())) if len(choices) == 1 else None


def _folder(told: Told) -> str | None:
    return told.settings.get("CONFIG_FILE_SRCDIR", "").rstrip("/") or None


def _mounted(told: Told, file: str) -> str | None:
    """Return the ConfigMap that is mounted where the file is."""
    return told.folders.get(posixpath.dirname(file)) if file else None


def _from_file(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, path in _OF_FILE.items():
        value = _at(document, path)
        if isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str) and value:
            yield name, value[:_MOST_TEXT]
    sharing = _at(document, ("sharing",))
    for key, word in _SHARING:
        replicas = [count for entry in _list(_at(sharing, (key, "resources"))) if (count := _replicas(entry)) > 1]
        if replicas:
            yield "sharing", word
            yield "replicas", str(max(replicas))
            if _at(sharing, (key, "renameByDefault")) is True:
                yield "renameByDefault", "true"
            return
    yield "sharing", "none"


def _replicas(entry: Any) -> int:
    count = _at(entry, ("replicas",))
    return count if isinstance(count, int) and not isinstance(count, bool) else 0


def _layouts(entries: list[Any]) -> Iterator[kube.MigLayout]:
    """Yield, from the last entry to the first, what each says of GPUs about which no later one has the last word."""
    decided: frozenset[int] = frozenset()
    for entry in reversed(entries):
        gpus, profiles = _gpus(_at(entry, ("devices",))), _profiles(entry)
        if not gpus or profiles is None:
            continue
        left = gpus - decided
        if left:
            yield kube.MigLayout(gpus="all" if left == _ALL else ",".join(map(str, sorted(left))), profiles=profiles)
        if not _at(entry, ("device-filter",)):
            decided |= gpus


def _gpus(devices: Any) -> frozenset[int]:
    """Return the indices of an entry; none for what is no such thing."""
    if devices == "all":
        return _ALL
    indices = [item for item in _list(devices) if isinstance(item, int) and not isinstance(item, bool)]
    return _ALL.intersection(indices) if len(indices) == len(_list(devices)) else frozenset()


def _profiles(entry: Any) -> Mapping[str, int] | None:
    """Return profile -> count; none of them where MIG is to be off, None for what is no layout."""
    is_on, devices = _at(entry, ("mig-enabled",)), _at(entry, ("mig-devices",))
    if is_on is False:
        return codec.EMPTY
    if is_on is not True or not isinstance(devices, Mapping | None) or len(devices or ()) > _MOST_PROFILES:
        return None
    profiles = dict(devices or {})
    if any(not isinstance(name, str) or type(count) is not int or count < 0 for name, count in profiles.items()):
        return None
    return codec.freeze({name[:_MOST_TEXT]: count for name, count in profiles.items()})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _at(value: Any, path: Iterable[str]) -> Any:
    """Return what stands at a path of keys; None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
