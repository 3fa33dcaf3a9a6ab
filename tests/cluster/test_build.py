"""Versions, the wrapper module and where programs are found; nothing is compiled here."""

import pytest

from hack.cluster import assets, gomodule, versions

RELEASED = {
    "Go": "1.26.0",
    "Godebug": [{"Key": "default", "Value": "go1.26"}],
    "Replace": [
        {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
        {"Old": {"Path": "go.etcd.io/etcd"}, "New": {"Path": "./FORBIDDEN_DEPENDENCY"}},
    ],
}


def test_a_kubernetes_program_gets_the_published_parts_of_its_own_release():
    program = versions.programs("1.37")["kube-scheduler"]
    assert gomodule.wrapper(program, RELEASED).splitlines() == [
        "module muster.dev/cluster/kube-scheduler",
        "go 1.26.0",
        "godebug default=go1.26",
        "require k8s.io/kubernetes v1.37.2",
        "replace k8s.io/api => k8s.io/api v0.37.2",
    ]


def test_a_kubernetes_program_knows_its_version():
    flags = gomodule.linker_flags(versions.programs("1.37")["kube-scheduler"])
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.2" in flags
    assert "-X k8s.io/component-base/version.gitMinor=37" in flags


@pytest.mark.parametrize("line", sorted(versions.LINES))
def test_every_line_has_the_whole_control_plane(line):
    assert set(versions.CONTROL_PLANE) <= set(versions.programs(line))


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return an empty cache and an empty folder of brought assets."""
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(assets.ASSETS_VARIABLE, str(tmp_path / "brought"))
    return tmp_path / "cache", tmp_path / "brought"


def a_program_at(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_brought_programs_come_before_built_ones_one_by_one(places):
    cache, brought = places
    known = versions.programs("1.37")
    assert assets.find(known["etcd"]) is None
    built = a_program_at(cache / "cluster" / "etcd" / known["etcd"].version / "etcd")
    assert assets.find(known["etcd"]) == built
    given = a_program_at(brought / "etcd")
    assert assets.find(known["etcd"]) == given
    assert assets.find(known["kube-apiserver"]) is None


def test_without_go_and_assets_the_reason_names_what_is_missing(places, monkeypatch):
    monkeypatch.setenv("PATH", "")
    etcd = versions.programs("1.37")["etcd"]
    assert assets.reason_missing([etcd]) == "no Go and no KUBEBUILDER_ASSETS to have etcd from"
    a_program_at(places[1] / "etcd")
    assert assets.reason_missing([etcd]) == ""
