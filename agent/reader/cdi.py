"""CDI specs of the vendor: which devices a runtime can inject (faults.md D6).

Input: directories of JSON or YAML specs. Output: kind, device names and the file's time.

Invariant: hostile or broken files never raise; one that cannot be read makes the plane Unknown and names the file,
since a list without it would say that its devices cannot be injected.

Why no YAML library: the runtime dependencies have none (design.md section 9) and the generator writes one plain form.
A file that is not of that form has no kind and counts as broken.
"""

import datetime
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from agent.model import planes
from muster.model.reading import Known, Reading, Unknown

_VENDOR = "nvidia.com/"
_LARGEST_BYTES = 4 << 20
_KIND = re.compile(r"kind:\s*[\"']?([\w./-]+)[\"']?\s*\Z")
_ITEM = re.compile(r"(?P<indent>\s*)-\s+(?P<rest>.*)\Z")
_NAME = re.compile(r"name:\s*[\"']?([^\"'\s#]+)[\"']?\s*\Z")


def read(directories: Iterable[pathlib.Path]) -> Reading[tuple[planes.CdiSpec, ...]]:
    """Return the vendor's specs, sorted by kind and then file name."""
    specs = []
    directories = tuple(directories)
    if not any(directory.parent.is_dir() for directory in directories):
        return Unknown("DirectoryMissing", f"not mounted: {', '.join(map(str, directories))}")
    for directory in directories:
        try:
            files = sorted(path for path in directory.iterdir() if path.suffix in (".json", ".yaml", ".yml"))
        except FileNotFoundError:
            continue
        except OSError as error:
            return Unknown("Unreadable", str(error))
        for path in files:
            try:
                specs.append(_spec(path))
            except (OSError, ValueError, RecursionError) as error:
                return Unknown("Malformed", f"{path}: {error}")
    return Known(tuple(sorted((spec for spec in specs if spec.kind.startswith(_VENDOR)), key=lambda spec: spec.kind)))


def _spec(path: pathlib.Path) -> planes.CdiSpec:
    if path.stat().st_size > _LARGEST_BYTES:
        raise ValueError(f"larger than {_LARGEST_BYTES} bytes")
    text = path.read_text()
    kind, devices = _from_json(text) if path.suffix == ".json" else from_yaml(text)
    written_at = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
    written_at = written_at.replace(microsecond=written_at.microsecond // 1000 * 1000)
    return planes.CdiSpec(kind=kind, written_at=written_at, devices=devices)


def _from_json(text: str) -> tuple[str, tuple[str, ...]]:
    document: Any = json.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise ValueError("no kind")
    devices = document.get("devices")
    if not isinstance(devices, list):
        return document["kind"], ()
    return document["kind"], tuple(
        str(device["name"]) for device in devices if isinstance(device, dict) and "name" in device
    )


def from_yaml(text: str) -> tuple[str, tuple[str, ...]]:
    r"""Return kind and device names of a spec in the generator's form.

    >>> from_yaml("kind: nvidia.com/gpu\ndevices:\n- containerEdits:\n    deviceNodes:\n    - name: x\n  name: \"0\"\n")
    ('nvidia.com/gpu', ('0',))
    """
    kind, devices, indent = "", [], None
    inside = False
    for line in text.splitlines():
        if line and not line[0].isspace() and not line.startswith(("-", "#")):
            inside, indent = line.rstrip() == "devices:", None
            kind = found[1] if (found := _KIND.match(line)) else kind
            continue
        if not inside:
            continue
        item = _ITEM.match(line)
        if item is not None and indent is None:
            indent = len(item["indent"])
        key = item["rest"] if item is not None and len(item["indent"]) == indent else _at(line, indent)
        if (named := _NAME.match(key)) is not None:
            devices.append(named[1])
    if not kind:
        raise ValueError("no kind")
    return kind, tuple(devices)


def _at(line: str, indent: int | None) -> str:
    """Return the line's key if it belongs to the device itself, two columns in from its dash."""
    stripped = line.lstrip()
    return stripped if indent is not None and len(line) - len(stripped) == indent + 2 else ""
