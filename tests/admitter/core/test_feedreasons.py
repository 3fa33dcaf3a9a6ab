"""Every reason of a refusal is explained to whoever is on call."""

import pathlib

import pytest

from admitter.core.feedstate import Reason

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "feed.md").read_text()


@pytest.mark.parametrize("reason", Reason)
def test_the_page_names_the_reason(reason):
    assert f"`{reason.value}`" in PAGE
