"""The agent's settings: one frozen value, every problem at once.

Flags, variables and bounds follow from the fields (muster.settings); the checks below look at fields together. Derived
timings are properties, so that a number is written once.
"""

import dataclasses
import os
import pathlib
import re
import shlex
from collections.abc import Mapping

from muster import settings
from muster.settings import setting

PREFIX = "MUSTER_AGENT"

ALLOW_TIME_SCALE = "MUSTER_ALLOW_TIME_SCALE"
"""Set to 1 by tests and the demo only: a scaled duration table is a lie on a real node (design.md section 4)."""

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]*):(\d{1,5})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    node: str = setting(text="name of this node")
    reader_socket: pathlib.Path = setting(pathlib.Path("/run/muster/reader.sock"), text="unix socket of the reader")
    spawn_reader: bool = setting(default=False, text="start the reader as a child process and keep it running")
    reader_arguments: str = setting("", text="further arguments of a spawned reader, split as a shell does")
    warmer_socket: pathlib.Path | None = setting(None, text="unix socket of the warmer; none: images are not reported")
    podresources_socket: pathlib.Path = setting(
        pathlib.Path("/var/lib/kubelet/pod-resources/kubelet.sock"), text="unix socket of the kubelet"
    )
    checkpoint: pathlib.Path = setting(
        pathlib.Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"),
        text="device-manager checkpoint of the kubelet",
    )
    admitters: tuple[str, ...] = setting((), text="admitters, host:port; a name stands for all its addresses")
    tls_ca: pathlib.Path | None = setting(None, text="CA that the admitter's certificate must have")
    tls_certificate: pathlib.Path | None = setting(None, text="own certificate, for mutual TLS")
    tls_key: pathlib.Path | None = setting(None, text="key of the own certificate")
    token_file: pathlib.Path | None = setting(
        None, text="projected service-account token of audience muster-admitter, shown instead of a certificate"
    )
    evidence_dir: pathlib.Path = setting(
        pathlib.Path("/run/muster/evidence"), text="directory on tmpfs for what a restart must not forget"
    )
    boot_id_path: pathlib.Path = setting(
        pathlib.Path("/proc/sys/kernel/random/boot_id"), text="where the kernel tells its boot id"
    )
    control_socket: pathlib.Path = setting(
        pathlib.Path("/run/muster/agent.sock"), text="unix socket that `muster-agent release` talks to"
    )
    metrics_address: str = setting("127.0.0.1:9400", text="address of /metrics, /healthz and /readyz")
    poll_seconds: float = setting(5.0, text="time between two cycles", low=0.05, high=60)
    processes_seconds: float = setting(30.0, text="time between two process lists", low=0.05, high=600)
    slow_seconds: float = setting(30.0, text="time between two looks at PCI, MPS and CDI", low=0.05, high=600)
    kubelet_deadline_seconds: float = setting(2.0, text="deadline of a call to the kubelet", low=0.05, high=30)
    nvml_deadline_seconds: float = setting(2.0, text="deadline of a device's hot facts", low=0.05, high=10)
    nvml_slow_deadline_seconds: float = setting(
        # With a poll of 5 s, a call that never returns is marked within 10 s (design.md section 7).
        4.0,
        text="deadline of a device's static facts or process list",
        low=0.05,
        high=60,
    )
    reader_silent_seconds: float = setting(
        # As long as a silent driver is given before the reader is replaced (sources/hungreader.py).
        30.0,
        text="how long the reader may answer nothing at all before /readerz fails, and its container is restarted",
        low=0.1,
        high=600,
    )
    slice_grace_seconds: float = setting(
        45.0, text="how long Node and Pods count after the admitter is gone", low=0.05, high=600
    )
    start_jitter_seconds: float = setting(2.0, text="longest delay of the first cycle", low=0, high=60)
    expected_gpus: int | None = setting(None, text="GPUs this node must have; none: the most seen since boot", low=0)
    time_scale: float = setting(
        1.0,
        text=f"how much faster fault durations run; tests and demo only, with {ALLOW_TIME_SCALE}=1",
        low=0.01,
        high=1000,
    )
    policy: pathlib.Path | None = setting(None, text="JSON file with rule modes and names that differ")
    log_level: str = setting("info", text="debug, info, warning or error")

    @property
    def coalesce_seconds(self) -> float:
        """How long a wake-up waits for the next: short, since an event has 250 ms until the admitter's view."""
        return min(0.02, self.poll_seconds / 10)

    @property
    def links_seconds(self) -> float:
        """Time between two looks at NVLinks and licences: 60 s by default (topology.md section 1.2)."""
        return 2 * self.slow_seconds

    @property
    def ready_seconds(self) -> float:
        """Ready while the last report is younger than three polls."""
        return 3 * self.poll_seconds

    @property
    def reader_argv(self) -> tuple[str, ...]:
        """Further arguments of a spawned reader."""
        return tuple(shlex.split(self.reader_arguments))


def from_flags(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> AgentConfig:
    """Return the configuration, or raise InvalidSettings with everything that is wrong."""

    def time_scale(config: AgentConfig) -> str:
        if config.time_scale != 1 and environ.get(ALLOW_TIME_SCALE) != "1":
            return (
                f"--time-scale: {config.time_scale} is refused outside tests and demo ({ALLOW_TIME_SCALE}=1 allows it)"
            )
        return ""

    return settings.load(AgentConfig, PREFIX, flags, environ, (*_CHECKS, time_scale))


def split_address(text: str) -> tuple[str, int]:
    """Return host and port.

    >>> split_address("[::1]:9400")
    ('::1', 9400)
    """
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not int(match[2]) <= 65535:
        raise ValueError(f"{text!r} is not host:port")
    return match[1].strip("[]"), int(match[2])


def _node(config: AgentConfig) -> str:
    return "" if _NODE_NAME.fullmatch(config.node) else f"--node: {config.node!r} is no node name"


def _addresses(config: AgentConfig) -> str:
    wrong = []
    for flag, values in (("--admitters", config.admitters), ("--metrics-address", (config.metrics_address,))):
        for value in values:
            try:
                split_address(value)
            except ValueError as error:
                wrong.append(f"{flag}: {error}")
    return "\n".join(wrong)


def _tls(config: AgentConfig) -> str:
    files = {"--tls-ca": config.tls_ca, "--tls-certificate": config.tls_certificate, "--tls-key": config.tls_key}
    if not config.admitters and not any(files.values()):
        return ""
    if config.token_file is not None:
        return _token(config)
    if None in files.values():
        return "\n".join(
            f"{flag}: {path} is not a readable file" if path else f"{flag}: is required to dial an admitter"
            for flag, path in files.items()
            if path is None or not os.access(path, os.R_OK)
        )
    from muster import tlscheck  # noqa: PLC0415 -- the reader imports this module, and must stay small without ssl

    ca, certificate, key = (tlscheck.Named(flag=flag, path=path) for flag, path in files.items() if path is not None)
    return "\n".join(tlscheck.problems(ca=ca, certificate=certificate, key=key, is_server=False))


def _token(config: AgentConfig) -> str:
    wrong = []
    if config.tls_certificate is not None or config.tls_key is not None:
        wrong.append("--token-file: stands in place of --tls-certificate and --tls-key")
    for flag, path in (("--tls-ca", config.tls_ca), ("--token-file", config.token_file)):
        if path is None or not os.access(path, os.R_OK):
            wrong.append(
                f"{flag}: {path} is not a readable file" if path else f"{flag}: is required to dial an admitter"
            )
    return "\n".join(wrong)


def _places(config: AgentConfig) -> str:
    """Hold back from paths that are something else: a socket's place is cleared before it is used."""
    wrong = []
    control = config.control_socket
    if control.exists() and not control.is_socket():
        wrong.append(f"--control-socket: {control} is there and is no socket")
    if config.evidence_dir.exists() and not config.evidence_dir.is_dir():
        wrong.append(f"--evidence-dir: {config.evidence_dir} is no directory")
    return "\n".join(wrong)


def _reader_arguments(config: AgentConfig) -> str:
    try:
        arguments = config.reader_argv
    except ValueError as error:
        return f"--reader-arguments: {error}"
    if arguments and not config.spawn_reader:
        return "--reader-arguments: are of no use without --spawn-reader"
    return ""


def _policy(config: AgentConfig) -> str:
    if config.policy is not None and not os.access(config.policy, os.R_OK):
        return f"--policy: {config.policy} is not a readable file"
    return ""


_CHECKS: tuple[settings.Check, ...] = (_node, _addresses, _tls, _places, _reader_arguments, _policy, settings.log_level)
