"""The manifests pass, and each rule catches the mistake it is there for. Every case changes the real rendering."""

import copy

import pytest

from hack import check_manifests


@pytest.fixture(scope="module")
def rendered():
    return check_manifests.render(check_manifests.ROOT / "daemonset" / "base")


@pytest.fixture
def objects(rendered):
    return copy.deepcopy(rendered)


def find(objects, kind, name):
    return next(item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))


def pod(objects, kind, name):
    return find(objects, kind, name)["spec"]["template"]["spec"]


def container(objects, name):
    pods = [item["spec"]["template"]["spec"] for item in objects if item["kind"] in check_manifests.WORKLOADS]
    return next(each for spec in pods for each in spec["containers"] if each["name"] == name)


def test_what_is_committed_passes(objects):
    assert check_manifests.problems(objects) == []


def test_the_schema_is_asked_first(objects):
    container(objects, "agent")["livenessProb"] = {}
    (problem,) = check_manifests.problems(objects)
    assert problem == (
        "DaemonSet/muster-agent: spec.template.spec.containers[0].livenessProb: Container has no such field"
    )


def bind_the_agent(objects):
    find(objects, "ClusterRoleBinding", "muster-admitter")["subjects"][0]["name"] = "muster-agent"


def bind_everybody(objects):
    find(objects, "RoleBinding", "muster-admitter")["subjects"] = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"}
    ]


def misspell_the_account(objects):
    pod(objects, "Deployment", "muster-admitter")["serviceAccountName"] = "muster-admiter"


def misspell_a_volume(objects):
    container(objects, "reader")["volumeMounts"][0]["name"] = "socket"


def misspell_a_probe_port(objects):
    container(objects, "admitter")["readinessProbe"]["httpGet"]["port"] = "health"


def misspell_a_selector(objects):
    find(objects, "Service", "muster-admitter-feed")["spec"]["selector"]["app.kubernetes.io/name"] = "admitter"


def send_to_no_port(objects):
    find(objects, "Service", "muster-admitter")["spec"]["ports"][0]["targetPort"] = "feed"


def misspell_a_setting(objects):
    container(objects, "reader")["env"].append({"name": "MUSTER_READER_SOKET", "value": "/run/x.sock"})


def give_a_bad_value(objects):
    container(objects, "reader")["env"].append({"name": "MUSTER_READER_CALL_TIMEOUT_SECONDS", "value": "soon"})


def start_something_else(objects):
    container(objects, "agent")["command"] = ["muster-agent", "runn"]


def declare_another_port(objects):
    container(objects, "admitter")["ports"][0]["containerPort"] = 7445


CASES = {
    bind_the_agent: "binds a role to ServiceAccount muster-agent",
    bind_everybody: "binds a role to Group system:serviceaccounts",
    misspell_the_account: "there is no ServiceAccount muster-admiter",
    misspell_a_volume: "mounts socket, which is no volume",
    misspell_a_probe_port: "admitter.readinessProbe asks port health",
    misspell_a_selector: "Service/muster-admitter-feed: selects no pod",
    send_to_no_port: "Service/muster-admitter: sends to port feed",
    misspell_a_setting: "reader: MUSTER_READER_SOKET is no setting of ReaderConfig",
    give_a_bad_value: "MUSTER_READER_CALL_TIMEOUT_SECONDS): 'soon' is not a number",
    start_something_else: "starts ['muster-agent', 'runn']",
    declare_another_port: "admitter has port 7445, and no setting that listens there",
}


@pytest.mark.parametrize(("mistake", "expected"), CASES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_each_mistake_is_caught(objects, mistake, expected):
    mistake(objects)
    assert any(expected in problem for problem in check_manifests.problems(objects))


def test_the_admitter_has_exactly_the_rights_of_the_design(objects):
    rules = find(objects, "ClusterRole", "muster-admitter")["rules"]
    rights = {(resource, *rule["verbs"]) for rule in rules for resource in rule["resources"]}
    assert rights == {
        ("nodes", "get", "list", "watch"),
        ("pods", "get", "list", "watch", "patch"),
        ("nodes/status", "patch"),
        ("events", "create"),
        ("resourceslices", "list", "watch"),
        ("deviceclasses", "list", "watch"),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }


def test_only_the_reader_is_privileged_and_only_it_sees_the_host(objects):
    spec = pod(objects, "DaemonSet", "muster-agent")
    host = {volume["name"] for volume in spec["volumes"] if volume.get("hostPath", {}).get("path") in ("/", "/dev")}
    for each in spec["containers"]:
        is_reader = each["name"] == "reader"
        assert each["securityContext"].get("privileged", False) is is_reader
        assert bool(host & {mount["name"] for mount in each["volumeMounts"]}) is is_reader
    agent = container(objects, "agent")["securityContext"]
    assert agent["capabilities"] == {"drop": ["ALL"]}
    assert agent["readOnlyRootFilesystem"]
    assert not agent["allowPrivilegeEscalation"]
    assert not spec["automountServiceAccountToken"]


def test_a_probe_may_ask_another_container_of_the_pod_by_number(objects):
    container(objects, "reader")["livenessProbe"]["httpGet"]["port"] = 9401
    assert check_manifests.problems(objects) == [
        "DaemonSet/muster-agent: reader.livenessProbe asks port 9401, which nobody there has"
    ]


def test_an_agent_that_is_down_costs_no_healthy_reader(objects):
    """The agent answers the reader's probe; the kubelet starts a container that crashes again within 300 s."""
    probe = container(objects, "reader")["livenessProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] > 300
