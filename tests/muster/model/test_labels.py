"""The table people read and the constants programs use are one."""

import pathlib
import re

from muster.model import labels

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "labels.md"
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| (?P<on>[^|]+) \| (?P<kind>[^|]+) \| (?P<value>[^|]+) \|$", re.MULTILINE)


def test_the_page_lists_exactly_the_constants_in_their_order():
    rows = [(row["key"], tuple(row["on"].split(", ")), row["kind"]) for row in ROW.finditer(PAGE.read_text())]
    assert rows == [(key.full, key.on, key.kind) for key in labels.ALL]


def test_no_constant_is_left_out_of_the_list():
    assert {value for value in vars(labels).values() if isinstance(value, labels.Key)} == set(labels.ALL)


def test_the_page_names_the_bounds_and_defaults_of_the_code():
    low, high = labels.GANG_SIZE_RANGE
    text = PAGE.read_text()
    assert f"{low}..{high}" in text
    assert f"default `{labels.DEFAULT_PODSET}`" in text
