"""Files of ConfigMaps: parsed, or nothing; never an exception, never more than they weigh."""

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
