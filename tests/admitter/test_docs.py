"""docs/admission.md lists every closed word that a client can hear."""

import pathlib
import re

import pytest

from muster.model.vocabulary import EndReason, WaitReason

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "admission.md").read_text()


@pytest.mark.parametrize(("heading", "words"), [("Why a gang waits", WaitReason), ("Why a gang ended", EndReason)])
def test_every_reason_has_its_row(heading, words):
    section = PAGE.split(f"### {heading}")[1].split("\n#")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == {word.value for word in words}
