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


def run(tmp_path, source, ci, **bare):
    (tmp_path / "test_it.py").write_text(source)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  hardware: needs a GPU\n  real: needs programs\n")
    # `make test` lets programs be built; the inner run decides that for itself.
    environment = {**os.environ, "MUSTER_TESTS_BUILD": "", "PYTHONPATH": str(ROOT), "CI": "true" if ci else "", **bare}
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


REAL = """
import pytest

@pytest.mark.real("etcd")
def test_first(): assert False, "must not run"

@pytest.mark.real("etcd", "skopeo")
def test_second(): assert False, "must not run"
"""


def without_programs(tmp_path):
    """Return the environment of a machine that has no Go, no packages and nothing built."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "MUSTER_CACHE": str(tmp_path / "cache"), "KUBEBUILDER_ASSETS": ""}


def test_without_go_and_assets_real_tests_skip_and_one_line_says_so(tmp_path):
    done = run(tmp_path, REAL, ci=False, **without_programs(tmp_path))
    assert done.returncode == 0
    lacking = "no Go and no KUBEBUILDER_ASSETS to have etcd from"
    package = "no skopeo; on Debian: apt-get install skopeo"
    said = [line for line in done.stdout.splitlines() if line.startswith("did not run")]
    assert said == [f"did not run: 1 ({lacking}), 1 ({lacking}; {package})"]


def test_in_ci_real_tests_that_cannot_run_fail(tmp_path):
    done = run(tmp_path, REAL, ci=True, **without_programs(tmp_path))
    assert done.returncode == 1
    assert "cannot run, and CI=true: no Go and no KUBEBUILDER_ASSETS to have etcd from" in done.stdout


def test_what_the_chosen_tests_need_is_installed_in_ci_before_they_run(tmp_path):
    bare = without_programs(tmp_path)
    calls = tmp_path / "calls"
    installer = tmp_path / "bin" / "apt-get"
    installer.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n')
    installer.chmod(0o755)
    run(tmp_path, REAL, ci=True, **bare)
    assert not calls.exists(), "a plain pytest changes nothing"
    run(tmp_path, REAL.replace("test_second", "not_a_test"), ci=True, **bare, MUSTER_TESTS_BUILD="1")
    assert not calls.exists(), "nobody asked for a package"
    run(tmp_path, REAL, ci=True, **bare, MUSTER_TESTS_BUILD="1")
    assert calls.exists() == (os.geteuid() == 0)


def test_a_program_that_cannot_be_built_ends_the_run_with_the_reason(tmp_path):
    bare = without_programs(tmp_path)
    compiler = tmp_path / "bin" / "go"
    compiler.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    compiler.chmod(0o755)
    done = run(tmp_path, REAL, ci=False, **bare, MUSTER_TESTS_BUILD="1")
    assert done.returncode == 3
    assert "no network" in done.stdout + done.stderr
