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
