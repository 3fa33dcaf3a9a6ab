"""What this containerd is and can: its version, its snapshotters, which of them a pod's handler leads to.

In: introspection, CRI's status. Out: Abilities.

Invariant: what cannot be read is not there. A containerd that tells no configuration has no handlers, and every pod that
names one counts as cold.

Why by folder: containerd 2 no longer tells which snapshotter is the default, but it tells where that one's images are.
"""

import dataclasses
import re
from collections.abc import Mapping

from agent.core import warmhandlers
from agent.warmer.client import Client
from muster.model import codec

_SNAPSHOTTER = "io.containerd.snapshotter.v1"
_TRANSFER = frozenset(("io.containerd.transfer.v1", "io.containerd.streaming.v1"))
_HOSTS_SINCE = 2
"""1.7 has the service, and heeds no hosts.toml: it asks https at a registry that is plain http, and no mirror (1.7.24)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """One containerd, as it was when it last began to answer."""

    version: str = ""
    snapshotters: frozenset[str] = frozenset()
    has_transfer: bool = False
    handlers: Mapping[str, str] = codec.mapping()
    """Runtime handler -> snapshotter; the empty name is a pod without a RuntimeClass."""


async def read(runtime: Client) -> Abilities:
    """Ask containerd."""
    version, plugins = await runtime.version(), await runtime.plugins()
    folders = {plugin.id: plugin.root for plugin in plugins if plugin.kind == _SNAPSHOTTER}
    configuration = await runtime.configuration()
    place = await runtime.image_folder()
    default = warmhandlers.default_of(configuration, str(place or ""), folders)
    return Abilities(
        version=version,
        snapshotters=frozenset(folders),
        has_transfer=_major(version) >= _HOSTS_SINCE and {plugin.kind for plugin in plugins} >= _TRANSFER,
        handlers=warmhandlers.handlers_of(configuration, default, frozenset(folders)),
    )


def _major(version: str) -> int:
    """Return a version's first number.

    >>> _major("v2.2.9"), _major("1.7.24~ds1"), _major("")
    (2, 1, 0)
    """
    found = re.match(r"v?(\d{1,4})\.", version)
    return int(found[1]) if found else 0
