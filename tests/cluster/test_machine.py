"""What a test on real programs needs: named when it is missing, provided where that is wanted."""

import os

import pytest

from hack.cluster import assets, build, machine, versions

LINE = versions.DEFAULT_LINE


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Return the only folder of programs of a machine that has nothing else."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(assets.ASSETS_VARIABLE, raising=False)
    return tmp_path / "bin"


def a_program(folder, name, body="exit 0"):
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("etcd", "no Go and no KUBEBUILDER_ASSETS to have etcd from"),
        ("skopeo", "no skopeo; on Debian: apt-get install skopeo"),
    ],
)
def test_what_is_missing_has_a_reason_until_it_is_there(bare, monkeypatch, name, reason):
    assert machine.reason_missing([name], LINE) == reason
    a_program(bare, name)
    monkeypatch.setenv(assets.ASSETS_VARIABLE, str(bare))
    assert machine.reason_missing([name], LINE) == ""


def test_with_go_what_is_not_built_yet_is_named(bare):
    a_program(bare, "go")
    assert machine.reason_missing(["etcd", "kueue"], LINE) == "not built: etcd, kueue; make test builds"


def test_a_name_that_nobody_knows_is_a_mistake(bare):
    with pytest.raises(ValueError, match="nothing is known of kubelte"):
        machine.reason_missing(["kubelte"], LINE)


def test_where_nothing_can_be_provided_nothing_is_tried(bare):
    machine.provide(["etcd", "skopeo"], LINE, installs=True)
    assert machine.reason_missing(["etcd"], LINE) == "no Go and no KUBEBUILDER_ASSETS to have etcd from"


def test_packages_are_installed_only_where_that_is_wanted_and_start_no_service(bare):
    a_program(bare, "apt-get", f'echo "$RUNLEVEL $@" >>{bare}/calls')
    machine.provide(["skopeo"], LINE, installs=False)
    assert os.listdir(bare) == ["apt-get"]
    machine.provide(["skopeo"], LINE, installs=True)
    assert (bare / "calls").read_text().splitlines() == [
        "1 update -qq",
        "1 install -y -qq --no-install-recommends skopeo",
    ]


def test_a_package_that_cannot_be_had_says_why(bare):
    a_program(bare, "apt-get", "echo no such package; exit 100")
    with pytest.raises(build.Failed, match=r"(?s)apt-get update ended with 100.*no such package"):
        machine.provide(["skopeo"], LINE, installs=True)


def test_the_outlook_says_what_is_built_how_long_and_where(bare, tmp_path):
    assert "will be skipped" in machine.outlook(LINE)
    a_program(bare, "go")
    said = machine.outlook(LINE)
    assert "kube-apiserver v1.37" in said
    assert "minutes on 2 cores" in said
    assert str(tmp_path / "cache" / "cluster") in said


@pytest.mark.parametrize("line", sorted(versions.LINES))
def test_every_program_has_a_price(line):
    assert all(program.cold_seconds > 0 for program in versions.programs(line).values())
