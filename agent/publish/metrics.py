"""Show the newest report as Prometheus metrics.

In: the board, at the moment of a scrape. Out: gauges made for that scrape alone, so that the series of a GPU or a resource
that is gone is gone with it. Counters are of our own events only.

Invariant: a count that is Unknown has no sample; it is never 0. Labels are bounded: resources and GPUs of one node, the
closed words of the contract, the planes. docs/metrics.md lists every metric and label; a test compares.

Not here: the HTTP server (probes.py).
"""

import collections
import dataclasses
import pathlib
import resource as process_limits
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from agent.core import kernel_log
from agent.model.planes import Observation
from agent.model.policy import Mode
from agent.publish.board import Board, Notice
from muster.model.reading import Known, Unknown
from muster.model.report import DeviceState, Finding, NodeReport, PodState, Verdict

EVENTS = ("cycles", "wakes", "inconsistent_samples", "failed_cycles", "reader_losses", "reader_replacements")
"""Kinds of muster_agent_events_total, all exported from the start."""

COUNTS = (
    "admit_strict", "admit_lenient", "capacity", "allocatable", "advertised", "present", "allocated", "usable", "free",
)  # fmt: skip
"""Fields of a resource's report; each is a label value of muster_node_units."""

MAX_XIDS = 256
"""Series of muster_gpu_xids: eight GPUs know a few codes each, and the kernel log is text that anybody may have written."""

_PROCESS = pathlib.Path("/proc/self")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallFigures:
    """Time spent in NVML, and what the reader costs, as the reader tells it."""

    nvml_seconds: float = 0.0
    nvml_timeouts: int = 0
    reader_cpu_seconds: float | None = None
    """What the reader itself costs, by its own word; None: it has not said yet."""
    reader_resident_bytes: int | None = None


class Collector:
    """Yields all families of one scrape."""

    def __init__(
        self,
        board: Board,
        *,
        monotonic: Callable[[], float],
        calls: Callable[[], CallFigures],
        streams: Callable[[], int],
        sent: Callable[[], Mapping[str, int]],
        rules: Mapping[str, int],
    ) -> None:
        self._board, self._monotonic = board, monotonic
        self._calls, self._streams, self._sent = calls, streams, sent
        self._rules = rules
        """Mode -> how many rules are in it; it is set once, at the start."""

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        notice = self._board.notice
        if notice is not None:
            yield from report_families(notice.report)
            yield xid_family(notice.observation)
            yield from self._cycle(notice)
        yield from self._own()

    def _cycle(self, notice: Notice) -> Iterator[Metric]:
        now = self._monotonic()
        yield _gauge("muster_agent_report_age_seconds", "Time since the last report.", now - notice.published_at)
        yield _gauge("muster_agent_cycle_seconds", "Duration of the last cycle.", notice.cycle_seconds)
        yield _gauge("muster_agent_sample_attempts", "Samples taken until two agreed.", notice.attempts)
        ages = GaugeMetricFamily("muster_agent_plane_age_seconds", "Time since a plane was read.", labels=["plane"])
        for plane, read_at in notice.read_at.items():
            ages.add_metric([plane], now - read_at)
        yield ages
        yield _one_of("muster_agent_nvml_session", "1 for the session's mode.", "mode", notice.nvml_session)

    def _own(self) -> Iterator[Metric]:
        figures = self._calls()
        yield _counter("muster_agent_nvml_seconds", "Time spent in NVML calls.", figures.nvml_seconds)
        yield _counter("muster_agent_nvml_timeouts", "NVML reads that missed their deadline.", figures.nvml_timeouts)
        if figures.reader_cpu_seconds is not None:
            yield _counter("muster_reader_cpu_seconds", "The reader's processor time.", figures.reader_cpu_seconds)
        if figures.reader_resident_bytes:
            yield _gauge("muster_reader_memory_bytes", "The reader's resident memory.", figures.reader_resident_bytes)
        events = CounterMetricFamily("muster_agent_events", "Our own events.", labels=["event"])
        for event in EVENTS:
            events.add_metric([event], self._board.events[event])
        yield events
        rules = GaugeMetricFamily("muster_agent_rules", "Rules by mode.", labels=["mode"])
        for mode, number in sorted(self._rules.items()):
            rules.add_metric([mode], number)
        yield rules
        yield _gauge("muster_agent_feed_streams", "Admitters with a welcomed stream.", self._streams())
        sent = CounterMetricFamily("muster_agent_feed_messages", "Messages sent to admitters.", labels=["kind"])
        for kind, count in sorted(self._sent().items()):
            sent.add_metric([kind], count)
        yield sent
        used = process_limits.getrusage(process_limits.RUSAGE_SELF)
        yield _counter("muster_agent_cpu_seconds", "Own processor time.", used.ru_utime + used.ru_stime)
        memory = GaugeMetricFamily("muster_agent_memory_bytes", "Own memory, by kind.", labels=["kind"])
        for kind, size in read_memory_bytes(_PROCESS).items():
            memory.add_metric([kind], size)
        yield memory


def report_families(report: NodeReport) -> Iterator[Metric]:
    """Yield what the report says."""
    yield _one_of("muster_node_verdict", "1 for the node's verdict.", "verdict", report.verdict.value)
    verdicts = GaugeMetricFamily("muster_resource_verdict", "1 for the verdict.", labels=["resource", "verdict"])
    units = GaugeMetricFamily("muster_node_units", "Units; an unknown count is absent.", labels=["resource", "count"])
    risk = GaugeMetricFamily("muster_resource_pick_risk", "Bad ids among the free.", labels=["resource"])
    findings = GaugeMetricFamily(
        "muster_findings", "Findings by cause.", labels=["resource", "verdict", "cause", "reason", "mode"]
    )
    per_node = {"": report.node_findings}
    for name, resource in report.resources.items():
        verdicts.add_metric([name, resource.verdict.value], 1)
        per_node[name] = resource.findings
        for field in COUNTS:
            match getattr(resource, field):
                case Known(value):
                    units.add_metric([name, field], value)
        match resource.pick_risk:
            case Known(value):
                risk.add_metric([name], value)
    for name, found in per_node.items():
        for key, number in _count(map(_finding, found)).items():
            findings.add_metric([name, *key], number)
    yield from (verdicts, units, risk, findings)
    devices = GaugeMetricFamily("muster_gpu_state", "1 for a device's state.", labels=["uuid", "state", "reason"])
    for device in report.devices:
        devices.add_metric([device.uuid, device.state.value, device.reason], 1)
    yield devices
    pods = GaugeMetricFamily("muster_pods", "Pods that something is wrong with.", labels=["state", "reason"])
    for key, number in _count((pod.state.value, pod.reason) for pod in report.pods).items():
        pods.add_metric(key, number)
    yield pods
    unverified = GaugeMetricFamily(
        "muster_unverified_checks",
        "1 for an optional plane or check that could not be read.",
        labels=["check", "reason"],
    )
    for key in dict.fromkeys(tuple(text.partition(": ")[::2]) for text in report.unverified):
        unverified.add_metric(key, 1)
    yield unverified


def xid_family(observation: Observation) -> Metric:
    """Return how often each GPU reported each Xid since the boot: what a lost GPU without one is told by."""
    family = GaugeMetricFamily(
        "muster_gpu_xids", "Xids since boot, from NVML and the kernel log.", labels=["uuid", "xid"]
    )
    match observation.nvml:
        case Known(nvml):
            gpus = nvml.devices
        case Unknown():
            gpus = ()
    by_gpu = kernel_log.xids_of(gpus, observation.kernel_log)
    by_gpu[""] = kernel_log.unplaced(gpus, observation.kernel_log)
    counts = collections.Counter((uuid, event.code) for uuid, events in by_gpu.items() for event in events)
    for (uuid, code), number in sorted(counts.items())[:MAX_XIDS]:
        family.add_metric([uuid, str(code)], number)
    return family


def read_memory_bytes(process: pathlib.Path) -> dict[str, int]:
    """Return own resident and proportional memory; a kind that the kernel does not tell is missing."""
    found = {}
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("Rss", "Pss"):
                found[name.lower()] = int(rest.split()[0]) * 1024
    except (OSError, ValueError):
        return {}
    return found


def _finding(item: Finding) -> tuple[str, ...]:
    return item.verdict.value, item.cause, item.reason, (Mode.OBSERVE if item.observed else Mode.ENFORCE).value


def _count(items: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    counted: dict[tuple[str, ...], int] = {}
    for item in items:
        counted[item] = counted.get(item, 0) + 1
    return counted


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _one_of(name: str, text: str, label: str, value: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    family.add_metric([value], 1)
    return family


VALUES: Mapping[str, tuple[str, ...]] = {
    "verdict": tuple(verdict.value for verdict in Verdict),
    "state": (*(state.value for state in DeviceState), *(state.value for state in PodState)),
    "count": COUNTS,
    "event": EVENTS,
    "mode": ("open", "closed", "short", *(mode.value for mode in Mode if mode is not Mode.OFF)),
}
"""Closed label values, for docs/metrics.md."""
