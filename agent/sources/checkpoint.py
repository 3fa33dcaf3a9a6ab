"""Read the kubelet's device-manager checkpoint.

In: the file's path. Out: planes.Checkpoint, or Unknown with a reason.

Invariant: whatever is in the file, a read returns; it never raises and never reads more than `MAX_BYTES`. The content is
a hint and stays one: it tells whose UID a listed pod may have had, never how many devices are free (faults.md S11).

Both shapes of device ids are read, the flat list of 1.19 and the map by NUMA node (S12). The checksum is not checked: it
covers Go's own printing of the structure, and a wrong hint can only fail to help.
"""

import json
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import Any

from agent.model import planes
from muster.model import codec
from muster.model.codec import Malformed
from muster.model.reading import Known, Reading, Unknown

MAX_BYTES = 16 * 1024 * 1024
"""An entry is about 1 KiB; this is far beyond any node."""

_Signature = tuple[int, int, int]


class CheckpointFile:
    """One file, parsed again only when it was replaced."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._signature: _Signature | None = None
        self._parsed: Reading[planes.Checkpoint] = Unknown("NotFound")

    def read(self) -> Reading[planes.Checkpoint]:
        """Return the hint as the file has it now."""
        try:
            # Not blocking: a FIFO in the file's place must not stop the loop.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return Unknown("NotFound", f"{self._path}: a node that never allocated has none (faults.md N4)")
        except PermissionError:
            return Unknown("NoPermission", str(self._path))
        except (OSError, ValueError) as error:
            return Unknown("ReadFailed", f"{self._path}: {error}")
        try:
            return self._read_open(descriptor)
        except OSError as error:
            return Unknown("ReadFailed", f"{self._path}: {error.strerror}")
        finally:
            os.close(descriptor)

    def _read_open(self, descriptor: int) -> Reading[planes.Checkpoint]:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Unknown("NotAFile", str(self._path))
        if status.st_size > MAX_BYTES:
            return Unknown("TooLarge", f"{self._path} has {status.st_size} bytes")
        signature = (status.st_ino, status.st_mtime_ns, status.st_size)
        if signature != self._signature:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                self._parsed = parse(file.read(MAX_BYTES + 1))
            self._signature = signature
        return self._parsed


def parse(content: bytes) -> Reading[planes.Checkpoint]:
    """Return the checkpoint in a file's bytes."""
    try:
        data = json.loads(content)
        return Known(_checkpoint(data))
    except Malformed as error:
        return Unknown("Malformed", str(error))
    except RecursionError:
        return Unknown("Malformed", "nested too deep")
    except ValueError as error:  # JSON, UTF-8 and numbers beyond Python's limit alike
        return Unknown("Malformed", str(error)[:200])


def _checkpoint(data: Any) -> planes.Checkpoint:
    body = _object(_object(data, "$").get("Data"), "$.Data")
    registered = _object(_given(body, "RegisteredDevices", {}), "$.Data.RegisteredDevices")
    entries = _given(body, "PodDeviceEntries", [])
    if not isinstance(entries, list):
        raise Malformed("$.Data.PodDeviceEntries", "expected a list")
    return planes.Checkpoint(
        registered=codec.freeze(
            {
                name: _texts([] if ids is None else ids, f"$.Data.RegisteredDevices.{name}")
                for name, ids in registered.items()
            }
        ),
        pods=tuple(_pod(entry, f"$.Data.PodDeviceEntries[{index}]") for index, entry in enumerate(entries)),
    )


def _pod(data: Any, path: str) -> planes.CheckpointPod:
    entry = _object(data, path)
    return planes.CheckpointPod(
        uid=_text(entry.get("PodUID"), f"{path}.PodUID"),
        container=_text(entry.get("ContainerName"), f"{path}.ContainerName"),
        resource=_text(entry.get("ResourceName"), f"{path}.ResourceName"),
        ids=_ids(_given(entry, "DeviceIDs", []), f"{path}.DeviceIDs"),
    )


def _ids(data: Any, path: str) -> tuple[str, ...]:
    """Return the ids of either shape; an id on two NUMA nodes counts once."""
    if isinstance(data, Mapping):
        found = [id_ for node, ids in data.items() for id_ in _texts([] if ids is None else ids, f"{path}.{node}")]
    else:
        found = list(_texts(data, path))
    return tuple(sorted(set(found)))


def _texts(data: Any, path: str) -> tuple[str, ...]:
    if not isinstance(data, list):
        raise Malformed(path, f"expected a list, got {type(data).__name__}")
    return tuple(_text(item, f"{path}[{index}]") for index, item in enumerate(data))


def _text(data: Any, path: str) -> str:
    if not isinstance(data, str):
        raise Malformed(path, f"expected text, got {type(data).__name__}")
    data.encode()  # JSON can spell half a surrogate pair, which no other format of ours can carry: ValueError.
    return data


def _given(data: Mapping[str, Any], name: str, empty: Any) -> Any:
    """Return the field; Go writes an empty list or map as null."""
    value = data.get(name)
    return empty if value is None else value


def _object(data: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise Malformed(path, f"expected an object, got {type(data).__name__}")
    return data
