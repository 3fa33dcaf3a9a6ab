"""Take the names out of a capture and leave everything that joins.

In: capture lines as JSON objects, one after another. Out: the same lines with node, namespace and pod names, pod UIDs, GPU
and boot ids replaced, the same name always by the same stand-in, so that a redacted capture still gives the same verdict.

Invariant: a stand-in has the form of what it stands for (a GPU's id is still a UUID behind its prefix, a pod's UID is
still one inside a cgroup path). Node labels and annotations outside nvidia.com/ and muster.dev/ are dropped: nobody knows
what they hold. Of one that a rule looks for the key stays.

Why by field and not by search alone: a namespace may be called `gpu`, and so is a resource.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from agent.model.policy import Policy

_UUID = re.compile(r"([0-9a-fA-F]{8})([-_])([0-9a-fA-F]{4})\2([0-9a-fA-F]{4})\2([0-9a-fA-F]{4})\2([0-9a-fA-F]{12})")
_LONG_HEX = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{32,64}(?![0-9a-fA-F])")
"""A container's id, or a static pod's UID."""

_FREE_TEXT = ("message", "detail", "text", "notes", "cgroup", "reason")
_ASKED_FOR = Policy().partitioner_labels
_OURS = ("nvidia.com/", "muster.dev/", "node-role.kubernetes.io/")


class Redactor:
    """Remembers every stand-in, across lines."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def line(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Return one redacted line."""
        self._walk(observation, ())  # Learn all names first: texts speak of pods that come later in the line.
        result: dict[str, Any] = self._walk(observation, ())
        node = result.get("node_object")
        if isinstance(node, dict):
            for field in ("labels", "annotations"):
                if field in node:
                    node[field] = {
                        key: value if key.startswith(_OURS) else ""
                        for key, value in node[field].items()
                        if key.startswith(_OURS) or key in _ASKED_FOR
                    }
        return result

    def _walk(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {self._ids(key): self._walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, path) for item in value]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: tuple[str, ...]) -> str:
        field, parent = path[-1], path[-2] if len(path) > 1 else ""
        named = _NAMED.get((parent, field)) or _NAMED.get(("", field))
        if named is not None:
            return named(self, text)
        text = self._ids(text)
        return self._known_names(text) if field in _FREE_TEXT else text

    def _ids(self, text: str) -> str:
        text = _UUID.sub(self._uuid, text)
        return _LONG_HEX.sub(lambda found: self._hex(found[0]), text)

    def _known_names(self, text: str) -> str:
        """Replace the names seen so far, longest first, where they stand as words."""
        for (kind, name), stand_in in sorted(self._names.items(), key=lambda item: -len(item[0][1])):
            if kind in ("node", "ns", "pod") and name in text:
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", stand_in, text)
        return text

    def _uuid(self, found: "re.Match[str]") -> str:
        separator = found[2]
        plain = found[0].lower().replace("_", "-")
        digits = f"{self._number('uuid', plain):032x}"
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return separator.join(parts)

    def _hex(self, text: str) -> str:
        return f"{self._number('hex', text.lower()):0{len(text)}x}"

    def _number(self, kind: str, name: str) -> int:
        """Return the stand-in's number; the same for the same name."""
        if (kind, name) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, name] = f"{kind}-{self._counts[kind]}"
        return int(self._names[kind, name].rpartition("-")[2])

    def name(self, kind: str, text: str) -> str:
        """Return the stand-in of a name."""
        return f"{kind}-{self._number(kind, text)}" if text else text

    def full_name(self, text: str) -> str:
        """Return the stand-in of namespace/name."""
        namespace, slash, pod = text.partition("/")
        return self.name("ns", namespace) + slash + self.name("pod", pod) if slash else self.name("pod", text)

    def uid(self, text: str) -> str:
        """Return the stand-in of an id, which is a UUID in a cluster and anything in a test."""
        replaced = self._ids(text)
        return replaced if replaced != text or not text else self.name("uid", text)


_NAMED: Mapping[tuple[str, str], Callable[[Redactor, str], str]] = {
    ("", "namespace"): lambda to, text: to.name("ns", text),
    ("", "node"): lambda to, text: to.name("node", text),
    ("", "pod"): Redactor.full_name,
    ("", "uid"): Redactor.uid,
    ("pods", "name"): lambda to, text: to.name("pod", text),
    ("claims", "name"): lambda to, text: to.name("claim", text),
    ("boot", "id"): Redactor.uid,
    ("slices", "pool"): lambda to, text: to.name("pool", text),
}
"""(list or object it stands in, field) -> how; an empty first half: wherever it stands."""
