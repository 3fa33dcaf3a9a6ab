"""The alerts, on what an agent exports for whole captures: a fault raises its own, a healthy node none at all."""

import subprocess

import pytest
import yaml

from agent.model.policy import Policy
from hack import alerts, promtool
from hack.matrix import captures
from tests import scrapes

pytestmark = pytest.mark.timeout(900)
"""The first test that asks replays every capture; on a busy machine that takes its time."""

MINUTES = 75
"""Longer than the longest `for`."""

RAISES = {
    "a8-checkpoint-lost-pod-without-gpu": {"MusterPodWithoutGpu"},
    "a10-no-devices-waiting-forever": {"MusterGpuNotAdvertised"},
    "b2-gpu-lost": {"MusterGpuSick", "MusterStaleAdvertisement"},
    "b5-ignored-xid-needs-reset": {"MusterGpuSick"},
    "b7-present-on-bus-absent-in-nvml": {"MusterGpuMissing"},
    "c1-reconfigured-plugin-not-restarted": {"MusterMigMismatch", "MusterStaleAdvertisement"},
    "c4-mig-on-but-empty": {"MusterMigMismatch"},
    "c7-mig-manager-stuck": {"MusterMaintenanceStuck"},
    "d1-library-driver-mismatch": {"MusterNodeBlocked"},
    "d4-fabric-manager-down": {"MusterFabricDown"},
    "d6-cdi-spec-empty-or-stale": {"MusterPodWithoutGpu"},
    "e3-ledger-leak": {"MusterNodeBlackHole"},
    "e5-process-outside-kubernetes": {"MusterGpuContended"},
    "h2-grpc-4mib": {"MusterAgentBlind"},
    "h4-podresources-missing": {"MusterAgentBlind"},
}
"""Capture -> alerts that its worst line, were it to stay, must raise; it may raise others of the same fault."""

HEALTHY = sorted(
    capture.name for capture in captures.load_all() if capture.entry.startswith("N") and not capture.is_twin
)


def page_of(name, pick):
    """Return the series that an agent exports after the picked line of a capture."""
    capture = captures.load(captures.FOLDER / f"{name}{captures.EXPECTED}")
    reports = captures.replay(capture, Policy())
    line = pick(reports)
    return scrapes.an_agent(reports[line], capture.observations[line])


def group(name, registry):
    """Return a promtool test: the page stays as it is, and at the end every alert is asked for."""
    series = [{"series": f'up{{job="muster-agent",node="{name}"}}', "values": f"1x{MINUTES}"}]
    for family in registry.collect():
        for sample in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in (*sample.labels.items(), ("node", name)))
            series.append({"series": f"{sample.name}{{{labels}}}", "values": f"{sample.value}x{MINUTES}"})
    asked = [rule["alert"] for item in alerts.groups() if item["name"] != "muster-admitter" for rule in item["rules"]]
    questions = [
        {
            "expr": f'group by (alertname) (ALERTS{{alertstate="firing",alertname="{alert}"}})',
            "eval_time": f"{MINUTES}m",
        }
        for alert in asked
    ]
    return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": questions}


def expecting(test, fired):
    """Return the test with an answer to each question: the alert, or nothing."""
    for question in test["promql_expr_test"]:
        alert = question["expr"].split('alertname="')[1].split('"')[0]
        if alert in fired:
            question["exp_samples"] = [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    return test


def run(tmp_path, tests):
    found = promtool.find()
    if found is None:
        pytest.skip("no promtool (make promtool)")
    body = {"rule_files": [str(alerts.SOURCE)], "evaluation_interval": "1m", "tests": tests}
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump(body))
    command = (str(found), "test", "rules", str(path))
    return subprocess.run(command, check=False, text=True, capture_output=True, timeout=300)


def test_healthy_nodes_that_look_faulty_raise_nothing(tmp_path):
    assert HEALTHY
    tests = [group(name, page_of(name, lambda _: -1)) for name in HEALTHY]
    done = run(tmp_path, tests)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


@pytest.mark.parametrize("name", sorted(RAISES))
def test_a_fault_raises_its_alert(tmp_path, name):
    """The line with the most standing findings, as it would be scraped while it lasts."""
    test = group(name, page_of(name, worst_line))
    test["promql_expr_test"] = [
        question
        for question in test["promql_expr_test"]
        if any(f'"{alert}"' in question["expr"] for alert in RAISES[name])
    ]
    done = run(tmp_path, [expecting(test, RAISES[name])])
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def worst_line(reports):
    """Return the line with the worst verdict, the last of them: what is transient before is complete by then."""
    order = list(type(reports[0].verdict))
    return max(range(len(reports)), key=lambda line: (-order.index(reports[line].verdict), line))
