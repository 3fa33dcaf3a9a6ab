"""docs/admission.md lists every closed word that a client can hear."""

import pathlib
import re

import pytest

from admitter.model.podstory import PodReason
from muster.model.vocabulary import EndReason, WaitReason

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "admission.md").read_text()


@pytest.mark.parametrize(("heading", "words"), [("Why a gang waits", WaitReason), ("Why a gang ended", EndReason)])
def test_every_reason_has_its_row(heading, words):
    section = PAGE.split(f"### {heading}")[1].split("\n#")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == {word.value for word in words}


def test_every_cause_of_a_pod_has_its_row():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "why.md").read_text().split("## Causes")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [reason.value for reason in PodReason]
