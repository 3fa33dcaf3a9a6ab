"""Settings of an admitter on an API server: where it is, who may lead, who is believed. A part of AdmitterConfig.

Without `--kubeconfig` and without `--in-cluster` there is no API server: one admitter, terms from `--state-dir`, Nodes and
Pods from `--cluster-file`, certificates only.
"""

import dataclasses
import os
import pathlib
import re
from typing import Any

from admitter.nodesettings import NodeSettings
from muster import settings
from muster.settings import setting

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_API_SERVER, _GATES = "--kubeconfig or --in-cluster", "--gates"
_NEEDS = {
    "--gates": ("held pods are seen and let go there", (_API_SERVER,)),
    "--token-listen": ("nobody else could check a token", (_API_SERVER,)),
    "--webhook-listen": ("it would put gates on that nobody lifts", (_API_SERVER, _GATES)),
    "--not-started-limit": ("only pods that were let go get the condition", (_API_SERVER, _GATES)),
    "--observe": ("pods are watched there", (_API_SERVER,)),
    "--fail-open": ("only held pods can be let go", (_API_SERVER, _GATES)),
    "--keep-pools": ("autoscalers are asked on Nodes", (_API_SERVER,)),
    "--pull-secrets": ("they are read there", (_API_SERVER,)),
    "--taints": ("they are written on Nodes", (_API_SERVER,)),
}
"""Setting -> why it is nothing by itself, and what it rests on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(NodeSettings):
    kubeconfig: pathlib.Path | None = setting(None, text="kubeconfig of the API server to work with")
    in_cluster: bool = setting(
        default=False, text="work with the API server of the cluster that this pod runs in, as its service account"
    )
    token_listen: str = setting(
        "", text="address for callers who show a token instead of a certificate, host:port; needs an API server"
    )
    agent_account: str = setting(
        "muster-system/muster-agent", text="service account of the agents, namespace/name: nobody else may feed"
    )
    token_cache_seconds: float = setting(
        60.0, text="how long the API server's word on a token or a right is believed", low=0, high=600
    )
    webhook_listen: str = setting(
        "", text="address of the webhook that puts the gate on new pods, host:port; none: there is no webhook"
    )
    webhook_name: str = setting(
        "muster-gates", text="MutatingWebhookConfiguration that the leader writes our authority into"
    )
    lease_namespace: str = setting("", text="namespace of the Lease; none: the pod's own, else muster-system")
    lease_name: str = setting("muster-admitter", text="name of the Lease that the admitters stand for")
    lease_seconds: float = setting(
        15.0, text="after so long without a renewal a standby leads; the leader stops at two thirds", low=1, high=300
    )

    @property
    def has_api_server(self) -> bool:
        """Whether there is an API server to work with."""
        return self.in_cluster or self.kubeconfig is not None


def _one_source(config: Any) -> str:
    given = [
        flag
        for flag, is_given in (
            ("--kubeconfig", config.kubeconfig is not None),
            ("--in-cluster", config.in_cluster),
            ("--cluster-file", config.cluster_file is not None),
        )
        if is_given
    ]
    return f"{given[-1]}: does not go with {given[0]}" if len(given) > 1 else ""


def _kubeconfig(config: ClusterSettings) -> str:
    if config.kubeconfig is not None and not os.access(config.kubeconfig, os.R_OK):
        return f"--kubeconfig: {config.kubeconfig} is not a readable file"
    return ""


def _company(config: Any) -> str:
    """Say what was asked for and would not be done, for want of what it rests on."""
    there = {_API_SERVER: config.has_api_server, _GATES: config.gates}
    wrong = []
    for flag, (words, needs) in _NEEDS.items():
        is_given = bool(getattr(config, flag.removeprefix("--").replace("-", "_")))
        missing = [need for need in needs if not there[need]]
        if is_given and missing:
            wrong.append(f"{flag}: needs {', and '.join(missing)}: {words}")
    return "\n".join(wrong)


def _names(config: ClusterSettings) -> str:
    namespace, _, name = config.agent_account.partition("/")
    wrong = []
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        wrong.append(f"--agent-account: {config.agent_account!r} is not namespace/name")
    if config.lease_namespace and not _NAME.fullmatch(config.lease_namespace):
        wrong.append(f"--lease-namespace: {config.lease_namespace!r} is no name")
    if not _NAME.fullmatch(config.lease_name):
        wrong.append(f"--lease-name: {config.lease_name!r} is no name")
    return "\n".join(wrong)


CHECKS: tuple[settings.Check, ...] = (_one_source, _kubeconfig, _company, _names)
