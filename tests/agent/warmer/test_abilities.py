"""What a containerd can, by what it says of itself."""

import pytest

from agent.model.warm import Plugin
from agent.warmer import abilities

KINDS = ("io.containerd.transfer.v1", "io.containerd.streaming.v1", "io.containerd.snapshotter.v1")


class Runtime:
    def __init__(self, version, kinds):
        self._version, self._plugins = version, tuple(Plugin(kind=kind, id="overlayfs", root="/r") for kind in kinds)

    async def version(self):
        return self._version

    async def plugins(self):
        return self._plugins

    async def configuration(self):
        return ""

    async def image_folder(self):
        return None


@pytest.mark.parametrize(
    ("version", "kinds", "has_transfer"),
    [
        ("v2.2.9", KINDS, True),
        ("2.0.0", KINDS, True),
        ("v2.2.9", KINDS[1:], False),
        ("1.7.24~ds1", KINDS, False),
        ("1.6.20~ds1", KINDS[2:], False),
        ("", KINDS, False),
        ("nonsense", KINDS, False),
    ],
)
async def test_a_transfer_is_used_only_where_it_heeds_the_hosts_files(version, kinds, has_transfer):
    assert (await abilities.read(Runtime(version, kinds))).has_transfer is has_transfer
