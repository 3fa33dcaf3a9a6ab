"""Each test runs in one stage, and a path narrows all of them."""

import subprocess
import sys

import pytest

from hack import teststages

STAGES = {stage.name: stage for stage in teststages.STAGES}

TESTS = """
import pytest

def test_plain(): assert True

@pytest.mark.e2e
def test_story(): assert True

@pytest.mark.real
def test_program(): assert True

@pytest.mark.real
@pytest.mark.shares
def test_beside(): assert True

@pytest.mark.real
@pytest.mark.e2e
def test_both(): assert True
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    markers = "e2e: whole programs\n  real: others' programs\n  shares: beside others"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n  {markers}\naddopts = -p no:cacheprovider\n")
    for name in ("tests", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "other" / "test_other.py").write_text("def test_plain(): assert True\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(stage, *arguments):
    command = teststages.command(STAGES[stage], "0", [*arguments, "-q", "-rA", "-o", "pythonpath="])
    done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=60)
    return {line.rsplit("::")[-1] for line in done.stdout.splitlines() if line.startswith("PASSED")}


@pytest.mark.parametrize(
    ("stage", "tests"),
    [
        ("unit", {"test_plain"}),
        ("real", {"test_program"}),
        ("images", {"test_beside"}),
        ("e2e", {"test_story", "test_both"}),
    ],
)
def test_a_test_runs_in_one_stage(folder, stage, tests):
    assert ran(stage, "tests/test_it.py") == tests


def test_a_path_narrows_a_stage(folder):
    assert ran("unit", "tests/test_it.py::test_plain") == {"test_plain"}
    assert ran("unit", "tests/test_it.py::test_story") == set()


def test_a_stage_without_a_test_is_no_failure_beside_one_that_has_some(folder, capfd):
    stages = [STAGES["real"], STAGES["e2e"]]
    assert teststages.run(stages, "0", ["other", "tests/test_it.py"]) == 0
    assert teststages.run(stages, "0", ["other"]) == teststages.NOTHING_COLLECTED
    assert "test: real no test in" in capfd.readouterr().err.splitlines()[-1]


def test_all_stages_run_and_a_failure_is_the_answer(folder, capfd):
    (folder / "tests" / "test_it.py").write_text(
        TESTS.replace("def test_program(): assert True", "def test_program(): assert 0")
    )
    assert teststages.run([STAGES["real"], STAGES["e2e"]], "0", ["tests"]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert "real failed (1) in" in last
    assert "e2e passed in" in last


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], False), (["-k", "nothing"], False), (["--color=no"], False), (["tests/test_it.py::test_plain"], True)],
)
def test_what_was_asked_for_is_known(folder, arguments, expected):
    assert teststages.narrowed(arguments) is expected


def test_the_help_names_the_stages():
    done = subprocess.run(
        [sys.executable, "-m", "hack.teststages", "--help"], check=False, text=True, capture_output=True, timeout=60
    )
    assert "{unit,real,images,e2e}" in done.stdout
