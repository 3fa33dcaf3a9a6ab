"""Settings are complete and checked, or refused with every problem."""

import dataclasses

import pytest

from admitter import config
from hack import pki
from muster import settings


@pytest.fixture
def files(tmp_path):
    issued = pki.create(tmp_path).issue_admitter()
    return {f"tls_{field.name}": str(getattr(issued, field.name)) for field in dataclasses.fields(issued)}


def test_defaults_are_those_of_the_design(files):
    settled = config.from_flags(files, {})
    assert (settled.node_ttl_seconds, settled.heartbeat_seconds, settled.lease_grace_seconds) == (15, 5, 60)
    assert settled.term_grace_seconds == 75
    assert settled.tick_seconds == 1
    assert settled.admitter_name
    assert settled.policy.gpu_resource == "nvidia.com/gpu"


def test_a_new_terms_grace_can_be_set(files):
    settled = config.from_flags(files | {"new_term_grace_seconds": "3"}, {})
    assert settled.term_grace_seconds == 3


def test_every_problem_is_named_at_once(files, tmp_path):
    bad = files | {
        "tls_ca": str(tmp_path / "none"),
        "listen": "here",
        "metrics_address": "0.0.0.0:99999",
        "node_ttl_seconds": "6",
        "cluster_file": str(tmp_path / "nothing"),
        "gpu_resource": "gpu",
        "log_level": "loud",
    }
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(bad, {})
    text = str(caught.value)
    for flag in (
        "--tls-ca",
        "--listen",
        "--metrics-address",
        "--node-ttl-seconds",
        "--cluster-file",
        "--gpu-resource",
        "--log-level",
    ):
        assert flag in text


def test_what_is_required_is_named():
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags({}, {"MUSTER_ADMITTER_LENIENT_PICK_RISK": "2"})
    assert len(caught.value.problems) == 4
    assert "MUSTER_ADMITTER_TLS_KEY" in str(caught.value)


API_SERVER, BOTH = "needs --kubeconfig or --in-cluster", "needs --kubeconfig or --in-cluster, and --gates"


@pytest.mark.parametrize(
    ("flag", "value", "needs"),
    [
        ("--gates", "true", API_SERVER),
        ("--token-listen", "127.0.0.1:0", API_SERVER),
        ("--webhook-listen", "127.0.0.1:0", BOTH),
        ("--not-started-limit", "3", BOTH),
        ("--keep-pools", "pool=a100", API_SERVER),
        ("--fail-open", "team-a", BOTH),
        ("--pull-secrets", "true", API_SERVER),
        ("--taints", "true", API_SERVER),
    ],
)
def test_what_rests_on_something_that_is_not_there_is_refused_by_its_flag(files, flag, value, needs):
    given = files | {flag.removeprefix("--").replace("-", "_"): value}
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(given, {})
    assert [problem.rpartition(": ")[0] for problem in caught.value.problems] == [f"{flag}: {needs}"]
    assert config.from_flags(given | {"in_cluster": "true", "gates": "true"}, {}).in_cluster


@pytest.mark.parametrize(
    ("field", "value"),
    [("gates", "true"), ("taints", "true"), ("keep_pools", "pool=a100"), ("webhook_listen", "127.0.0.1:0")],
)
def test_nothing_that_writes_goes_with_observe(files, field, value):
    given = files | {"in_cluster": "true", "observe": "*,team-a"}
    assert config.from_flags(given, {}).observe == ("*", "team-a")
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(given | {field: value}, {})
    assert f"--{field.replace('_', '-')}: does not go with --observe" in str(caught.value)


def test_a_lease_is_held_on_extended_resources_only(files):
    assert config.from_flags(files | {"lease_resources": "example.com/npu"}, {}).lease_resources == ("example.com/npu",)
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(files | {"lease_resources": "cpu,example.com/npu,hugepages-2Mi"}, {})
    assert "--lease-resources: 'cpu' is no extended resource" in str(caught.value)
    assert "--lease-resources: 'hugepages-2Mi' is no extended resource" in str(caught.value)


@pytest.mark.parametrize("flag", ["observe", "fail_open"])
def test_what_is_no_namespace_is_named(files, flag):
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(files | {"in_cluster": "true", "gates": "true", flag: "team-a,Team_B,**"}, {})
    wrong = [problem for problem in caught.value.problems if "is no namespace" in problem]
    assert "'Team_B' is no namespace" in wrong[0]
    assert "team-a" not in "".join(wrong)


@pytest.mark.parametrize(("field", "value"), [("webhook_listen", "127.0.0.1:0"), ("not_started_limit", "3")])
def test_what_needs_gates_is_refused_without_them_in_a_cluster_too(files, field, value):
    with pytest.raises(settings.InvalidSettings) as caught:
        config.from_flags(files | {"in_cluster": "true", field: value}, {})
    assert [problem.split(": ")[1] for problem in caught.value.problems] == ["needs --gates"]
