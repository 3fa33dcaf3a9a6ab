"""Disks that many wait for let no pull begin; a kernel that says nothing of it stops none."""

import pytest

from agent.warmer import busy, pressure
from agent.warmer.config import WarmerConfig
from muster.model.reading import Known, Unknown

TEXT = """some avg10={some:.2f} avg60=1.00 avg300=2.00 total=1234
full avg10=99.00 avg60=0.80 avg300=1.00 total=1000
"""


def test_what_the_kernel_says(tmp_path):
    file = tmp_path / "io"
    file.write_text(TEXT.format(some=61.25))
    assert pressure.read(file) == Known(61.25)


@pytest.mark.parametrize(
    "content", [None, b"", b"full avg10=9.00 avg60=1\n", b"some avg10=much avg60=1\n", b"\xff\xfe"]
)
def test_what_has_no_meaning_is_not_known_and_stops_nothing(tmp_path, content):
    file = tmp_path / "io"
    if content is not None:
        file.write_bytes(content)
    assert isinstance(pressure.read(file), Unknown)
    assert busy.Busy(WarmerConfig(io_pressure_path=file), lambda: 0.0).why_wait() == ""


@pytest.mark.parametrize(("some", "most", "waits"), [(60.0, 60.0, False), (60.01, 60.0, True), (100.0, 100.0, False)])
def test_above_the_setting_no_pull_begins_and_one_that_runs_goes_on(tmp_path, some, most, waits):
    file = tmp_path / "io"
    file.write_text(TEXT.format(some=some))
    found = busy.Busy(WarmerConfig(io_pressure_path=file, io_pressure_percent=most), lambda: 1000.0)
    assert bool(found.why_wait()) is waits
    assert found.why() == ""
    assert (found.quiet_at() > 1000.0) is waits, "it is looked at again soon"


def test_another_reason_comes_first(tmp_path):
    file = tmp_path / "io"
    file.write_text(TEXT.format(some=99.0))
    found = busy.Busy(WarmerConfig(io_pressure_path=file), lambda: 1000.0)
    found.starting(2)
    assert found.why_wait() == "2 pods are starting"
