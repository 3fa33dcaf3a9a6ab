"""What the summary and CI make of tests that could not run. Each case is a pytest run of its own."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

SKIPS = """
import pytest

def test_here(): assert True

def test_away(): pytest.skip("no kube-apiserver")

@pytest.mark.hardware
def test_gpu(): pytest.skip("no GPU")

@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


def run(tmp_path, source, ci):
    (tmp_path / "test_it.py").write_text(source)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  hardware: needs a GPU\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CI": "true" if ci else ""}
    command = [sys.executable, "-m", "pytest", "-p", "tests.suites", "-p", "no:cacheprovider", "--color=no"]
    return subprocess.run(
        command, check=False, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=60
    )


def test_outside_ci_a_missing_suite_is_named_in_one_line(tmp_path):
    done = run(tmp_path, SKIPS, ci=False)
    assert done.returncode == 0
    assert "did not run: 1 (no kube-apiserver), 1 (no GPU)" in done.stdout.splitlines()


def test_in_ci_a_missing_suite_fails_and_missing_hardware_does_not(tmp_path):
    done = run(tmp_path, SKIPS, ci=True)
    assert done.returncode == 1
    assert "cannot run, and CI=true: no kube-apiserver" in done.stdout
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed" in done.stdout.splitlines()[-1]


def test_in_ci_a_whole_file_that_skips_itself_fails(tmp_path):
    source = 'import pytest\npytest.skip("no containerd", allow_module_level=True)\n'
    assert run(tmp_path, source, ci=False).returncode == 5, "5: nothing was collected"
    done = run(tmp_path, source, ci=True)
    assert done.returncode == 2
    assert "cannot run, and CI=true: no containerd" in done.stdout
