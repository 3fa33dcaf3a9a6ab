"""The page about what Muster says on Nodes, and the docs that list it."""

import pathlib
import re

from admitter.model.ruling import Ground, Hold, Ruling
from admitter.publish.nodefigures import NodeFigures, NodeScene
from admitter.publish.nodemetrics import NodeCollector
from muster.model.nodeconditions import REASONS

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def figures():
    made = NodeFigures()
    made.scene = NodeScene(
        conditions={("GPUHealthy", "False"): 3},
        tainted=2,
        cap=4,
        withheld={"cure": 1},
        backlog=7,
        resting={"conditions": 8.0, "taint": 0.0, "event": 0.0},
    )
    made.requests["conditions", "done"] += 5
    return made


HOLD = Hold(ground=Ground.RULE, culprit="lost/3", since=0.0, nodes=frozenset({"a", "b"}))


def collected(made, *holds):
    return NodeCollector(made, lambda: Ruling(holds=holds)).collect()


def samples(made, *holds):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in collected(made, *holds)
        for sample in family.samples
    }


def test_the_page_shows_the_last_look():
    shown = samples(figures(), HOLD)
    assert shown["muster_node_conditions", (("condition", "GPUHealthy"), ("status", "False"))] == 3
    assert shown["muster_node_conditions", (("condition", "GPUHealthy"), ("status", "True"))] == 0
    assert shown["muster_node_taints_withheld", (("reason", "cure"),)] == 1
    assert shown["muster_node_writes_total", (("kind", "conditions"), ("outcome", "done"))] == 5
    assert shown["muster_node_write_rest_seconds", (("kind", "conditions"),)] == 8.0
    assert shown["muster_breaker_holding", ()] == 1
    assert shown["muster_breaker_held_nodes", (("culprit", "lost/3"), ("ground", "rule"))] == 2


def test_a_standby_shows_that_nothing_is_held_and_no_fleet():
    shown = samples(NodeFigures())
    assert shown == {("muster_breaker_holding", ()): 0, ("muster_node_failed_looks_total", ()): 0}


def test_every_metric_and_label_is_in_the_docs():
    shown = {}
    for family in collected(figures(), HOLD):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels}
        shown[name] = (family.type, ", ".join(sorted(labels)))
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", (DOCS / "metrics-nodes.md").read_text(), re.MULTILINE)
    assert {name: (kind, labels.strip().replace("`", "")) for name, kind, labels in rows} == shown


def test_every_reason_of_a_condition_is_in_the_docs_and_no_other():
    text = (DOCS / "conditions.md").read_text()
    tables = text[text.index("## Reasons") : text.index("## When a condition changes")]
    first_columns = re.findall(r"^\| (`[^|]*) \|", tables, re.MULTILINE)
    assert {name for column in first_columns for name in re.findall(r"`(\w+)`", column)} == REASONS
