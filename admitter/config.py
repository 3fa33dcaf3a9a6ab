"""The admitter's settings: one frozen value, every problem at once.

Flags, variables and bounds follow from the fields (muster.settings); the checks below look at fields together. Derived
timings are properties, so that a number is written once.
"""

import dataclasses
import os
import pathlib
import re
import socket
from collections.abc import Mapping

from admitter import clustersettings, gatesettings, imagesettings, nodesettings, queuesettings
from admitter.clustersettings import ClusterSettings
from admitter.model.decision import Policy
from muster import settings, tls, tlscheck
from muster.settings import setting

PREFIX = "MUSTER_ADMITTER"

_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]*):(\d{1,5})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdmitterConfig(ClusterSettings):
    name: str = setting("", text="name of this admitter; none: the host's")
    listen: str = setting("127.0.0.1:7443", text="address of the gRPC server, host:port")
    tls_ca: pathlib.Path = setting(text="CA that agents' and clients' certificates must have")
    tls_certificate: pathlib.Path = setting(text="own certificate")
    tls_key: pathlib.Path = setting(text="key of the own certificate")
    state_dir: pathlib.Path = setting(
        pathlib.Path("/var/lib/muster-admitter"), text="directory that holds the term counter"
    )
    cluster_file: pathlib.Path | None = setting(
        None, text="JSON file with nodes' slices, where there is no API server to watch"
    )
    decision_log: pathlib.Path | None = setting(None, text="file that every decision is appended to, as JSON lines")
    metrics_address: str = setting("127.0.0.1:9411", text="address of /metrics, /healthz and /readyz")
    node_ttl_seconds: float = setting(15.0, text="a node counts while younger than this", low=0.1, high=600)
    heartbeat_seconds: float = setting(5.0, text="time between two heartbeats of an agent", low=0.02, high=200)
    lease_grace_seconds: float = setting(
        60.0, text="how long a lease without pods outlives its client's stream", low=0.1, high=3600
    )
    replan_patience_seconds: float = setting(
        15.0, text="how long a lease without pods outlives its units before it is planned anew", low=0, high=3600
    )
    new_term_grace_seconds: float | None = setting(
        None, text="how long a new term listens before it grants; none: node_ttl + lease_grace", low=0, high=7200
    )
    ended_kept_seconds: float = setting(600.0, text="how long an ended gang can be asked about", low=0, high=86400)
    stream_max_age_seconds: float = setting(
        3600.0, text="age at which a stream ends and authenticates anew", low=1, high=86400
    )
    gpu_resource: str = setting("nvidia.com/gpu", text="resource that serves a request in whole GPUs")
    lenient_pick_risk: float = setting(
        0.0, text="share of bad ids that a restartable single pod puts up with", low=0, high=1
    )
    log_level: str = setting("info", text="debug, info, warning or error")

    @property
    def admitter_name(self) -> str:
        """The name that agents and people see."""
        return self.name or socket.gethostname()

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by flag."""
        given = {
            "--listen": self.listen,
            "--token-listen": self.token_listen,
            "--metrics-address": self.metrics_address,
            "--webhook-listen": self.webhook_listen,
        }
        return {flag: address for flag, address in given.items() if address}

    @property
    def tls_files(self) -> tls.Files:
        """The admitter's identity."""
        return tls.Files(ca=self.tls_ca, certificate=self.tls_certificate, key=self.tls_key)

    @property
    def term_grace_seconds(self) -> float:
        """How long a new term grants nothing: by then the old term's leases have run out or were heard of."""
        if self.new_term_grace_seconds is not None:
            return self.new_term_grace_seconds
        return self.node_ttl_seconds + self.lease_grace_seconds

    @property
    def tick_seconds(self) -> float:
        """A pass is taken at least this often: ages change without anybody saying so."""
        return min(1.0, self.node_ttl_seconds / 15, self.lease_grace_seconds / 10)

    @property
    def policy(self) -> Policy:
        """What decisions rest on."""
        return Policy(
            gpu_resource=self.gpu_resource,
            lenient_pick_risk=self.lenient_pick_risk,
            levels=self.levels,
            queue=self.queue_policy,
            images=self.image_policy,
            trust=self.trust_policy,
        )


def from_flags(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> AdmitterConfig:
    """Return the configuration, or raise InvalidSettings with everything that is wrong."""
    return settings.load(AdmitterConfig, PREFIX, flags, environ, _CHECKS)


def split_address(text: str) -> tuple[str, int]:
    """Return host and port.

    >>> split_address("[::1]:7443")
    ('::1', 7443)
    """
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"{text!r} is not host:port")
    return match[1].strip("[]"), int(match[2])


def _addresses(config: AdmitterConfig) -> str:
    wrong = []
    for flag, value in config.addresses.items():
        try:
            split_address(value)
        except ValueError as error:
            wrong.append(f"{flag}: {error}")
    return "\n".join(wrong)


def _tls(config: AdmitterConfig) -> str:
    return "\n".join(
        tlscheck.problems(
            ca=tlscheck.Named(flag="--tls-ca", path=config.tls_ca),
            certificate=tlscheck.Named(flag="--tls-certificate", path=config.tls_certificate),
            key=tlscheck.Named(flag="--tls-key", path=config.tls_key),
            is_server=True,
        )
    )


def _ttl(config: AdmitterConfig) -> str:
    # Two heartbeats may be lost before a healthy node is taken for silent.
    if config.node_ttl_seconds < 2 * config.heartbeat_seconds:
        return (
            f"--node-ttl-seconds: {config.node_ttl_seconds:g} is less than two heartbeats"
            f" of {config.heartbeat_seconds:g} s"
        )
    return ""


def _gpu_resource(config: AdmitterConfig) -> str:
    return "" if "/" in config.gpu_resource else f"--gpu-resource: {config.gpu_resource!r} is no extended resource"


def _cluster_file(config: AdmitterConfig) -> str:
    if config.cluster_file is not None and not os.access(config.cluster_file, os.R_OK):
        return f"--cluster-file: {config.cluster_file} is not a readable file"
    return ""


_CHECKS: tuple[settings.Check, ...] = (
    _addresses,
    _tls,
    _ttl,
    _gpu_resource,
    _cluster_file,
    settings.log_level,
    *nodesettings.CHECKS,
    *clustersettings.CHECKS,
    *queuesettings.CHECKS,
    *gatesettings.CHECKS,
    *imagesettings.CHECKS,
)
