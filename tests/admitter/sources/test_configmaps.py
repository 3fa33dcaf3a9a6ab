"""Files of ConfigMaps: parsed, or nothing; never an exception, never more than they weigh."""

import asyncio
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.sources import configmaps

NAME = ("gpu-operator", "layouts")


def test_a_file_is_read_as_plain_values():
    assert configmaps.parsed(NAME, "config.yaml", "mig-configs: {a: [{devices: all}]}") == {
        "mig-configs": {"a": [{"devices": "all"}]}
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "!!timestamp foo",
        '!!int ""',
        '!!python/object/apply:os.system ["true"]',
        "[" * 5000,
        "a: &a {k: v}\nb: {<<: [*a, *a]}",
        "\x00",
    ],
    ids=["cut", "a tag that does not fit", "an empty number", "an object", "deep", "a merge", "binary"],
)
def test_what_is_no_file_of_ours_is_nothing(text):
    assert configmaps.parsed(NAME, "config.yaml", text) is None


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_nothing(text):
    configmaps.parsed(NAME, "config.yaml", text)
    assert configmaps.parsed(NAME, "config.yaml", "<<" + text) is None


class Client:
    """Has every ConfigMap that is asked for."""

    def __init__(self):
        self.asked = []

    async def get(self, _kind, name, *, namespace):
        self.asked.append((namespace, name))
        return types.SimpleNamespace(data={"config.yaml": "version: v1"})

    async def close(self):
        """Nothing is held."""


async def test_what_pods_of_one_namespace_name_does_not_push_out_the_operators_own():
    client = Client()
    wanted = {("a", f"mig-manager-{number:02}") for number in range(configmaps.MOST)} | {NAME}
    changed = asyncio.Event()
    maps = configmaps.ConfigMaps(types.SimpleNamespace(client=lambda: client), lambda: wanted, changed.set)
    task = asyncio.create_task(maps.run())
    async with asyncio.timeout(30):
        await changed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert maps.documents[NAME] == {"config.yaml": {"version": "v1"}}
    assert len(client.asked) == configmaps.MOST_EACH + 1
