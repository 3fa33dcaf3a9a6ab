"""`muster status` and `muster why` with `--account`, through a real kubectl: Lease, ConfigMap, token and rights on a real API server.

Fake nodes have no kubelet to forward a port, so that one command of kubectl is played: it says the admitter's port and stays until
it is ended, as the true one does. What muster makes of kubectl's failures: tests/muster/cli/test_clusterdoor.py.
"""

import asyncio
import json
import os
import pathlib
import shlex
import stat
import sys

import pytest
import yaml
from lightkube.models import core_v1, meta_v1, rbac_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import rbac_authorization_v1 as rbac

from hack.cluster import flags
from muster.cli.connection import Exit
from tests.admitter.kubetown import KubeTown, until

PROGRAMS = pathlib.Path(sys.executable).parent
FOREIGN_GATE = "example.com/approval"
KUBECTL = """#!/bin/sh
case "$*" in *port-forward*)
  echo "$$ $*" >> {said}
  echo "Forwarding from 127.0.0.1:{port} -> 7443"
  exec sleep 600;;
esac
exec {kubectl} "$@"
"""


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    town = KubeTown(tmp_path, cluster, client, namespace)
    for name in ("operator", "stranger", "person"):
        town.account(name)
    town.grant("operator", ["get", "list"], "gangs")
    rule = rbac_v1.PolicyRule(apiGroups=["muster.dev"], resources=["capacities"], verbs=["list", "watch"])
    metadata = meta_v1.ObjectMeta(name=f"{namespace}-operator")
    client.create(rbac.ClusterRole(metadata=metadata, rules=[rule]))
    reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=metadata.name)
    subject = rbac_v1.Subject(kind="ServiceAccount", name="operator", namespace=namespace)
    client.create(rbac.ClusterRoleBinding(metadata=metadata, roleRef=reference, subjects=[subject]))
    # What docs/client.md says that the person needs, port-forward aside.
    metadata = meta_v1.ObjectMeta(name="person", namespace=namespace)
    client.create(
        rbac.Role(
            metadata=metadata,
            rules=[
                rbac_v1.PolicyRule(
                    apiGroups=[group], resources=[resource], resourceNames=[name] if name else None, verbs=[verb]
                )
                for group, resource, name, verb in (
                    ("coordination.k8s.io", "leases", "muster-admitter", "get"),
                    ("", "configmaps", "muster-ca", "get"),
                    ("", "serviceaccounts/token", "", "create"),
                )
            ],
        )
    )
    reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="Role", name="person")
    subject = rbac_v1.Subject(kind="ServiceAccount", name="person", namespace=namespace)
    client.create(rbac.RoleBinding(metadata=metadata, roleRef=reference, subjects=[subject]))
    # As daemonset/README.md has it made.
    metadata = meta_v1.ObjectMeta(name="muster-ca", namespace=namespace)
    client.create(core.ConfigMap(metadata=metadata, data={"ca.crt": town.world.admitter.ca.read_text()}))
    yield town
    for kind in (rbac.ClusterRoleBinding, rbac.ClusterRole):
        client.delete(kind, f"{namespace}-operator")


class Shell:
    """A person's: kubectl in the PATH, and a kubeconfig that lets it do what it needs and no more."""

    def __init__(self, town, port):
        self.town = town
        self.said = town.folder / "port-forwards"
        self.bin = town.folder / "bin"
        self.bin.mkdir()
        kubectl = self.bin / "kubectl"
        real = shlex.quote(str(PROGRAMS / "kubectl"))
        kubectl.write_text(KUBECTL.format(said=shlex.quote(str(self.said)), port=port, kubectl=real))
        kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
        config = yaml.safe_load(town.cluster.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": town.token("person", audience=flags.SERVICE_ISSUER)}
        self.kubeconfig = town.folder / "person.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    async def muster(self, *words, account="operator"):
        namespace = self.town.namespace
        process = await asyncio.create_subprocess_exec(
            *(PROGRAMS / "muster", *words, "--json", "--timeout-seconds", "60"),
            *("--account", f"{namespace}/{account}", "--namespace", namespace),
            env={
                "PATH": f"{self.bin}:/usr/bin:/bin",
                "HOME": str(self.town.folder),
                "KUBECONFIG": str(self.kubeconfig),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    def forwards(self):
        """The commands that forwarded a port, and whether any of them still runs."""
        lines = [line.partition(" ") for line in self.said.read_text().splitlines()]
        return [words for _, _, words in lines], any(is_running(int(process)) for process, _, _ in lines)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def held_pod(namespace):
    spec = core_v1.PodSpec(
        containers=[core_v1.Container(name="main", image="none")],
        schedulingGates=[core_v1.PodSchedulingGate(name=FOREIGN_GATE)],
    )
    return core.Pod(metadata=meta_v1.ObjectMeta(name="held", namespace=namespace), spec=spec)


async def test_an_account_sees_the_status_and_why_a_pod_does_not_run_if_it_has_the_rights(town, client, namespace):
    client.create(held_pod(namespace))
    async with town.kube_admitter() as (admitter, _):
        await until(lambda: town.holder() == "admitter-0", "a leader")
        shell = Shell(town, admitter.token_port)
        code, out, err = await shell.muster("status")
        assert code in (Exit.FINE, Exit.SOMETHING), err
        assert json.loads(out)["admitter"] == "admitter-0"
        code, out, err = await shell.muster("why", f"pod/{namespace}/held")
        assert code == Exit.SOMETHING, err
        assert FOREIGN_GATE in json.loads(out)["causes"][0]["summary"]
        assert await shell.muster("status", account="stranger") == (
            Exit.BAD_INPUT, "", f"muster: {refusal(namespace)}\n",
        )  # fmt: skip
        code, _, err = await shell.muster("status", account="nobody")
        assert code != Exit.FINE
        assert 'serviceaccounts "nobody" not found' in err
        forwards, _ = shell.forwards()
        assert forwards == [f"--namespace {namespace} port-forward pod/admitter-0 :7443"] * 3
        await until(lambda: not shell.forwards()[1], "the end of every port-forward")


def refusal(namespace):
    return f"system:serviceaccount:{namespace}:stranger may not watch capacities.muster.dev in the whole cluster"
