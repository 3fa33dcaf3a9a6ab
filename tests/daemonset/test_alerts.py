"""Alert rules: each fires and clears, on series that our exporters really have, and has a runbook page."""

import pathlib
import re
import subprocess

import pytest
import yaml

from agent.model.policy import Policy
from hack import alerts, promtool
from hack.matrix import captures
from tests import scrapes

pytestmark = pytest.mark.timeout(900)
"""The first test that asks replays every capture; on a busy machine that takes its time."""

CASES = sorted((pathlib.Path(__file__).parent / "alerts").glob("*.yaml"))
RUNBOOKS = pathlib.Path(__file__).parents[2] / "docs" / "runbooks"
RULES = tuple(alerts.alerts())
NAMES = [rule["alert"] for rule in RULES]

TARGET = {"job", "instance", "node"}
"""Labels that the scrape gives a target; no exporter of ours says them."""

SELECTOR = re.compile(r"\b(?P<name>muster_\w+|up)(?:\{(?P<labels>[^}]*)\})?")
MATCHER = re.compile(r'(?P<label>\w+)\s*(?P<how>=~|!~|!=|=)\s*"(?P<value>[^"]*)"')
GROUPED = re.compile(r"\b(?:by|on) \((?P<labels>[^)]*)\)")

PAGES = {
    "agent": lambda: scrapes.page_of(an_agent_with_a_lost_gpu()),
    "admitter": lambda: scrapes.page_of(scrapes.an_admitter()),
}


def an_agent_with_a_lost_gpu():
    capture = captures.load(captures.FOLDER / f"b3-lost-gpu-poisons-node{captures.EXPECTED}")
    return scrapes.an_agent(captures.replay(capture, Policy())[-1], capture.observations[-1])


@pytest.fixture(scope="module")
def tool():
    found = promtool.find()
    if found is None:
        pytest.skip("no promtool (make promtool)")
    return found


def run(tool, *arguments, text=None):
    command = (str(tool), *arguments)
    return subprocess.run(command, check=False, text=True, capture_output=True, input=text, timeout=300)


def matchers_of(text):
    return [(found["label"], found["how"], found["value"]) for found in MATCHER.finditer(text or "")]


def selectors():
    """Yield every selector of every rule: alert, metric, matchers."""
    for rule in RULES:
        for found in SELECTOR.finditer(rule["expr"]):
            yield rule["alert"], found["name"], matchers_of(found["labels"])


def fits(labels, matchers):
    """True if a series would be selected; a label that it lacks is empty, as for Prometheus."""
    for label, how, value in matchers:
        own = labels.get(label, "")
        is_equal = re.fullmatch(value, own) is not None if "~" in how else own == value
        if is_equal is how.startswith("!"):
            return False
    return True


def cases():
    for path in CASES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            yield path.stem, test


def test_promtool_takes_the_rules(tool, tmp_path):
    assert run(tool, "check", "rules", str(alerts.SOURCE)).returncode == 0
    moved = tmp_path / "alerts.yaml"
    moved.write_text(alerts.with_runbooks("https://runbooks.example/muster/"))
    done = run(tool, "check", "rules", str(moved))
    assert (done.returncode, f"{len(RULES)} rules found" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_cases_hold(tool, path):
    done = run(tool, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", PAGES)
def test_promtool_finds_nothing_on_a_real_page(tool, program):
    done = run(tool, "check", "metrics", text=PAGES[program]())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_is_seen_to_wait_to_fire_and_to_clear(name):
    """In one case at least: nothing at first, then the alert, then nothing again."""
    steps = []
    for _, test in cases():
        asked = [step for step in test["alert_rule_test"] if step["alertname"] == name]
        if asked:
            steps.append([bool(step["exp_alerts"]) for step in asked])
    assert steps
    assert all(seen == [False, True, False] for seen in steps)


def test_no_two_alerts_have_one_name():
    assert len(NAMES) == len(set(NAMES))


def test_what_a_rule_selects_is_on_a_real_page():
    """Every selector finds a series: its metric is exported, with these labels and values of them."""
    series = scrapes.all_series()
    missing = []
    for alert, name, matchers in selectors():
        own = [matcher for matcher in matchers if matcher[0] not in TARGET]
        if name != "up" and not any(fits(dict(labels), own) for found, labels in series if found == name):
            missing.append(f"{alert}: {name}{own}")
    assert missing == []


def test_every_word_of_a_selector_is_one_that_some_page_has():
    """A pattern with three words finds a series by one of them; the other two may not be misspelt."""
    values = {}
    for _, labels in scrapes.all_series():
        for label, value in labels:
            values.setdefault(label, set()).add(value)
    said = {
        (label, word)
        for _, _, matchers in selectors()
        for label, _, value in matchers
        if label not in TARGET
        for word in value.split("|")
        if word
    }
    assert sorted((label, word) for label, word in said if word not in values.get(label, ())) == []


def test_what_a_rule_groups_by_is_a_label_of_what_it_selects():
    labels_of = {}
    for name, labels in scrapes.all_series():
        labels_of.setdefault(name, set()).update(label for label, _ in labels)
    for rule in RULES:
        known = TARGET.union(*(labels_of.get(found["name"], ()) for found in SELECTOR.finditer(rule["expr"])))
        for found in GROUPED.finditer(rule["expr"]):
            assert {label.strip() for label in found["labels"].split(",")} <= known, rule["alert"]


def test_every_series_of_a_case_is_one_that_an_exporter_has():
    """Word for word, but for the target's labels and names that every node has of its own."""
    real = {(name, frozenset((k, v) for k, v in labels if k not in OWN)) for name, labels in scrapes.all_series()}
    unreal = []
    for stem, test in cases():
        for item in test["input_series"]:
            found = SELECTOR.match(item["series"])
            labels = {label: value for label, _, value in matchers_of(found["labels"])}
            told = frozenset((k, v) for k, v in labels.items() if k not in OWN | TARGET)
            if found["name"] != "up" and (found["name"], told) not in real:
                unreal.append(f"{stem}: {item['series']}")
    assert unreal == []


OWN = {"uuid", "xid"}


def test_every_alert_has_its_page_and_every_page_its_alert():
    pages = {path.stem for path in RUNBOOKS.glob("Muster*.md")}
    assert pages == set(NAMES)
    index = (RUNBOOKS / "README.md").read_text()
    assert [name for name in NAMES if f"]({name}.md)" not in index] == []


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_points_to_a_page_that_says_what_to_do(rule):
    path = pathlib.Path(__file__).parents[2] / rule["annotations"]["runbook_url"]
    assert path.stem == rule["alert"]
    text = path.read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == ["What it means", "What is at stake", "Confirm", "Cure", "When it clears"]
    assert text.startswith(f"# {rule['alert']}\n")
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert f"`{rule['labels']['severity']}`" in text
    assert f"`{rule.get('for', '0s')}`" in text


def test_the_monitors_find_the_pods_and_give_each_its_node():
    monitors = {
        item["metadata"]["name"]: item for item in yaml.safe_load_all((alerts.FOLDER / "podmonitors.yaml").read_text())
    }
    base = alerts.FOLDER.parent / "base"
    for name, file in (("muster-agent", "agent.yaml"), ("muster-admitter", "admitter.yaml")):
        (workload,) = [
            item
            for item in yaml.safe_load_all((base / file).read_text())
            if item["kind"] in ("DaemonSet", "Deployment")
        ]
        pod = workload["spec"]["template"]
        spec = monitors[name]["spec"]
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        ports = {port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", ())}
        assert {endpoint["port"] for endpoint in spec["podMetricsEndpoints"]} <= ports
        assert pod["metadata"]["labels"][spec["jobLabel"]] == name, "the alerts ask for this job"
    (endpoint,) = monitors["muster-agent"]["spec"]["podMetricsEndpoints"]
    assert {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"} in endpoint["relabelings"]


def test_the_operator_s_object_is_made_from_the_rules():
    made = yaml.safe_load(alerts.OBJECT.read_text())
    assert made["spec"]["groups"] == alerts.groups()
    assert alerts.OBJECT.read_text() == alerts.prometheus_rule()
