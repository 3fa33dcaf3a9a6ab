"""Check the manifests of daemonset/ without a cluster: render them, then hold every object to the API and to ourselves.

Input: what `kubectl kustomize` renders. Output: every problem, `Kind/name: what`.

Rules beyond the API's schema (kubeschema.py), each a function in RULES: the agent's account is bound to no role; accounts,
volumes, ports and selectors that are named exist; every program is started with settings that it accepts.

Why settings are checked by loading them: a flag that was renamed in the code and not here would only be noticed by the
pod that no longer starts.
"""

import dataclasses
import importlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from hack import kubeschema
from muster import settings

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASES = (
    "daemonset/base",
    "daemonset/profiles/no-host-pid",
    "daemonset/profiles/injection-host-pid",
    "daemonset/profiles/injection",
    "daemonset/profiles/no-checkpoint",
    "daemonset/profiles/no-api-server",
    "daemonset/profiles/least",
    "daemonset/profiles/warmer",
)

Manifest = dict[str, Any]

_OF_THE_RUNTIME = "NVIDIA_"
"""Variables that the container runtime reads: which devices to inject."""

WORKLOADS = ("DaemonSet", "Deployment")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Where the settings of a command are declared."""

    module: str
    config: str


PROGRAMS = {
    ("muster-agent", "run"): Program(module="agent.config", config="AgentConfig"),
    ("muster-agent", "warm"): Program(module="agent.warmer.config", config="WarmerConfig"),
    ("muster-agent", "read"): Program(module="agent.reader.config", config="ReaderConfig"),
    ("muster-admitter", "run"): Program(module="admitter.config", config="AdmitterConfig"),
}


def render(folder: pathlib.Path) -> list[Manifest]:
    """Return the objects of one kustomization."""
    kubectl = pathlib.Path(sys.executable).parent / "kubectl"
    command = (str(kubectl), "kustomize", str(folder))
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return [item for item in yaml.safe_load_all(done.stdout) if item is not None]


def problems(objects: Sequence[Manifest]) -> list[str]:
    """Return everything that is wrong with a set of objects."""
    found = [f"{_title(item)}: {text}" for item in objects for text in kubeschema.problems(item)]
    # The rules below trust the shape, so they wait until it is right.
    return found or [text for rule in RULES for text in rule(objects)]


def agent_has_no_role(objects: Sequence[Manifest]) -> Iterator[str]:
    for item in _of(objects, "RoleBinding", "ClusterRoleBinding"):
        for subject in item.get("subjects", ()):
            if subject["name"] == "muster-agent" or subject["kind"] != "ServiceAccount":
                yield f"{_title(item)}: binds a role to {subject['kind']} {subject['name']}; the agent has no permission at all"


def named_objects_exist(objects: Sequence[Manifest]) -> Iterator[str]:
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    for item in _of(objects, "RoleBinding", "ClusterRoleBinding"):
        wanted = [(item["roleRef"]["kind"], item["roleRef"]["name"])]
        wanted += [(subject["kind"], subject["name"]) for subject in item.get("subjects", ())]
        yield from (f"{_title(item)}: there is no {kind} {name}" for kind, name in wanted if (kind, name) not in names)
    for item in _of(objects, *WORKLOADS):
        account = _pod(item)["serviceAccountName"]
        if ("ServiceAccount", account) not in names:
            yield f"{_title(item)}: there is no ServiceAccount {account}"


def volumes_match(objects: Sequence[Manifest]) -> Iterator[str]:
    for item in _of(objects, *WORKLOADS):
        declared = {volume["name"] for volume in _pod(item).get("volumes", ())}
        mounted = {
            mount["name"] for container in _pod(item)["containers"] for mount in container.get("volumeMounts", ())
        }
        yield from (f"{_title(item)}: mounts {name}, which is no volume" for name in sorted(mounted - declared))
        yield from (f"{_title(item)}: volume {name} is mounted nowhere" for name in sorted(declared - mounted))


def probes_hit_a_port(objects: Sequence[Manifest]) -> Iterator[str]:
    for item in _of(objects, *WORKLOADS):
        # A name is the container's own; a number may be any container's of the pod, which has one address.
        numbers = {port["containerPort"] for each in _pod(item)["containers"] for port in each.get("ports", ())}
        for container in _pod(item)["containers"]:
            ports = {port["name"] for port in container.get("ports", ())} | numbers
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                port = container.get(probe, {}).get("httpGet", {}).get("port")
                if port is not None and port not in ports:
                    yield f"{_title(item)}: {container['name']}.{probe} asks port {port}, which nobody there has"


def selectors_hit_pods(objects: Sequence[Manifest]) -> Iterator[str]:
    pods = [(item["spec"]["template"]["metadata"]["labels"], _pod(item)) for item in _of(objects, *WORKLOADS)]
    for item in _of(objects, "Service"):
        wanted = item["spec"]["selector"].items()
        selected = [pod for labels, pod in pods if wanted <= labels.items()]
        if not selected:
            yield f"{_title(item)}: selects no pod"
            continue
        ports = {port["name"] for pod in selected for each in pod["containers"] for port in each.get("ports", ())}
        for port in item["spec"].get("ports", ()):
            if port["targetPort"] not in ports:
                yield f"{_title(item)}: sends to port {port['targetPort']}, which its pods do not have"


def settings_are_accepted(objects: Sequence[Manifest]) -> Iterator[str]:
    for item in _of(objects, *WORKLOADS):
        for container in _pod(item)["containers"]:
            for text in _settings_problems(container):
                yield f"{_title(item)}: {container['name']}: {text}"


def _settings_problems(container: Manifest) -> Iterator[str]:
    program = PROGRAMS.get(tuple(container["command"]))
    if program is None or container.get("args"):
        yield f"starts {container['command']} {container.get('args', '')}: settings are given as variables, to a program in PROGRAMS"
        return
    module = importlib.import_module(program.module)
    config, prefix = getattr(module, program.config), module.PREFIX
    known = {settings.variable_of(prefix, field.name) for field in dataclasses.fields(config)}
    # What only the cluster knows (the node's name) is some text here.
    given = {
        entry["name"]: entry.get("value", "from-the-cluster")
        for entry in container.get("env", ())
        if not entry["name"].startswith(_OF_THE_RUNTIME)
    }
    yield from (f"{name} is no setting of {program.config}" for name in sorted(given.keys() - known))
    try:
        settings.load(config, prefix, {}, given)
    except settings.InvalidSettings as error:
        yield from error.problems


def ports_are_the_programs(objects: Sequence[Manifest]) -> Iterator[str]:
    """A declared port is only a label; the program listens where its setting says."""
    for item in _of(objects, *WORKLOADS):
        for container in _pod(item)["containers"]:
            listens = {entry.get("value", "").rpartition(":")[2] for entry in container.get("env", ())}
            for port in container.get("ports", ()):
                if str(port["containerPort"]) not in listens:
                    yield f"{_title(item)}: {container['name']} has port {port['containerPort']}, and no setting that listens there"


RULES = (
    agent_has_no_role,
    named_objects_exist,
    volumes_match,
    probes_hit_a_port,
    selectors_hit_pods,
    settings_are_accepted,
    ports_are_the_programs,
)


def _of(objects: Sequence[Manifest], *kinds: str) -> Iterator[Manifest]:
    return (item for item in objects if item["kind"] in kinds)


def _pod(workload: Manifest) -> Manifest:
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def _title(item: Manifest) -> str:
    return f"{item.get('kind')}/{item.get('metadata', {}).get('name')}"


def main() -> int:
    found = [f"{base}: {text}" for base in BASES for text in problems(render(ROOT / base))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
