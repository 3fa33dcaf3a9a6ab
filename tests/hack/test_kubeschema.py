"""The strict check catches what an API server would silently drop or refuse."""

import copy

import pytest

from hack import kubeschema

DAEMONSET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "a"},
    "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}},
    },
}


def changed(path, value):
    """Return the DaemonSet with one field set, or removed where value is None."""
    result = copy.deepcopy(DAEMONSET)
    *parents, last = path
    place = result
    for step in parents:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result


CONTAINER = ("spec", "template", "spec", "containers", 0)
CASES = {
    "a misspelt field": (
        changed((*CONTAINER, "readynessProbe"), {}),
        ["spec.template.spec.containers[0].readynessProbe: Container has no such field"],
    ),
    "a field of another level": (changed(("replicas",), 2), ["replicas: DaemonSet has no such field"]),
    "a number as text": (
        changed((*CONTAINER, "ports", 0, "containerPort"), "9410"),
        ["spec.template.spec.containers[0].ports[0].containerPort: is str '9410', not int"],
    ),
    "true where a number belongs": (
        changed((*CONTAINER, "ports", 0, "containerPort"), True),
        ["spec.template.spec.containers[0].ports[0].containerPort: is bool True, not int"],
    ),
    "an unquoted label value": (
        changed(("spec", "selector", "matchLabels", "app"), True),
        ["spec.selector.matchLabels['app']: is bool True, not str"],
    ),
    "one object where a list belongs": (
        changed((*CONTAINER, "env"), {"name": "A"}),
        ["spec.template.spec.containers[0].env: is dict {'name': 'A'}, not a list"],
    ),
    "text where an object belongs": (
        changed((*CONTAINER, "resources"), "small"),
        ["spec.template.spec.containers[0].resources: is str 'small', not an object (ResourceRequirements)"],
    ),
    "a required field left out": (
        changed((*CONTAINER, "name"), None),
        ["spec.template.spec.containers[0].name: is required"],
    ),
    "an unknown kind": (changed(("kind",), "DeamonSet"), ["apiVersion 'apps/v1' has no kind 'DeamonSet'"]),
    "an unknown group": (changed(("apiVersion",), "app/v1"), ["apiVersion 'app/v1' has no kind 'DaemonSet'"]),
}


@pytest.mark.parametrize(("manifest", "expected"), CASES.values(), ids=CASES.keys())
def test_each_mistake_is_named_with_its_path(manifest, expected):
    assert list(kubeschema.problems(manifest)) == expected


def test_a_good_object_passes():
    assert list(kubeschema.problems(DAEMONSET)) == []


def test_null_is_not_a_value():
    manifest = copy.deepcopy(DAEMONSET)
    manifest["spec"]["minReadySeconds"] = None
    assert list(kubeschema.problems(manifest)) == ["spec.minReadySeconds: is null, not int"]


def test_all_mistakes_are_reported_at_once():
    manifest = changed((*CONTAINER, "name"), None)
    manifest["spec"]["replicas"] = 1
    assert len(list(kubeschema.problems(manifest))) == 2
