"""The evidence table is total, names real fields, and tells the truth about which privilege a rule needs."""

import dataclasses
import functools

import pytest

from agent.core.rules import evidence, table
from agent.model import planes, policy, privilege
from agent.model.policy import Policy
from agent.model.privilege import Privilege
from hack.matrix import captures, profiles
from muster.model import shapes
from tests.ruleshown import findings_of, rule_of, timelines

pytestmark = pytest.mark.timeout(900)
"""The first test that asks replays every capture; on a busy machine that takes its time."""

REMOVABLE = tuple(item for item in Privilege if item is not Privilege.NONE)


def rules_of(reports):
    return {rule_of(finding) for report in reports for finding in findings_of(report)}


@functools.cache
def by_name():
    return {capture.name: capture for found in timelines().values() for capture in found}


@functools.cache
def rules_without(name, missing):
    """Return the rules that a timeline hits without one privilege."""
    capture = by_name()[name]
    lacks = frozenset({missing})
    seen = tuple(profiles.seen_by(lacks, item) for item in capture.observations)
    return rules_of(captures.judged(seen, Policy(), api_server=profiles.has_api_server(lacks, capture.api_server)))


def fields_below(cls, prefix=""):
    """Yield the path of every field of an observation, whatever it is wrapped in."""
    for field, shape in shapes.fields_of(cls):
        path = f"{prefix}{field.name.rstrip('_')}"
        yield path
        inner = shape
        while inner.item is not None:
            inner = inner.item
        if dataclasses.is_dataclass(inner.type):
            yield from fields_below(inner.type, f"{path}.")


FIELDS = frozenset(fields_below(planes.Observation))
OF_THE_LINE = ("schema", "node", "taken_at", "notes", "kubelet")
"""What is no plane: the line's own head, and the folder that three planes are in."""


def test_every_rule_has_its_evidence_and_nothing_else_has():
    assert evidence.OF_RULE.keys() == table.ROWS.keys()


def test_every_path_is_a_field_of_an_observation():
    named = {path for item in evidence.OF_RULE.values() for path in (*item.needs, *item.uses)}
    assert sorted((named | privilege.OF_FIELD.keys()) - FIELDS) == []


def test_every_duration_is_some_rule_s_and_every_clock_is_a_duration():
    waits = {rule.wait for rule in table.ROWS.values() if rule.wait}
    clocks = {name for item in evidence.OF_RULE.values() for name in item.clocks}
    assert waits | clocks == policy.DURATIONS.keys()


def test_no_rule_looks_at_what_no_source_reads():
    """A rule that did would decide captures, and be silent on a running agent."""
    named = {path for item in evidence.OF_RULE.values() for path in (*item.needs, *item.uses)}
    assert evidence.UNREAD <= FIELDS
    assert not {path for path in named for field in evidence.UNREAD if path == field or path.startswith(f"{field}.")}


def test_every_field_has_its_privilege():
    assert [path for path in sorted(FIELDS) if path not in OF_THE_LINE and not privilege.of(path)] == []


@pytest.mark.parametrize("rule", sorted(table.ROWS))
def test_what_a_rule_loses_without_a_privilege_is_what_the_table_says(rule):
    """Without a privilege of its needs a rule is silent; one that it does not name changes nothing."""
    item = evidence.OF_RULE[rule]
    needs = {privilege.of(path) for path in item.needs}
    uses = {privilege.of(path) for path in item.uses}
    wrong = []
    for capture in timelines()[rule]:
        for missing in REMOVABLE:
            is_seen = rule in rules_without(capture.name, missing)
            if not is_seen and missing not in needs | uses:
                wrong.append(f"{capture.name}: gone without {missing}, which the table does not name")
    assert wrong == []


@pytest.mark.parametrize("rule", sorted(table.ROWS))
def test_no_rule_says_that_it_needs_what_it_does_without(rule):
    """What a rule is said to need, some capture of its own misses."""
    needs = {privilege.of(path) for path in evidence.OF_RULE[rule].needs} - {Privilege.NONE}
    own = timelines()[rule]
    kept = [
        str(missing)
        for missing in sorted(needs)
        if all(rule in rules_without(capture.name, missing) for capture in own)
    ]
    assert kept == []
