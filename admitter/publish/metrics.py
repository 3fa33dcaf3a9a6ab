"""Show the newest scene as Prometheus metrics.

In: the scene of the last pass and our own counters, at the moment of a scrape. Out: gauges made for that scrape alone, so
that the series of a resource that is gone is gone with it.

Invariant: labels are bounded: closed words and resource names, never a node, a gang or a client. docs/metrics-admitter.md
lists every metric and label; a test compares.
"""

import collections
import resource as process_limits
from collections.abc import Callable, Collection, Iterator, Mapping

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from admitter.core import observe
from admitter.core.observe import Tally
from admitter.core.outage import Outage
from admitter.core.strikes import REJECTIONS
from admitter.model import nodecapacity
from admitter.model.hold import HoldReason
from admitter.model.record import GangState
from admitter.publish.figures import Figures, Histogram, Scene
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, WaitReason

STALE = "STALE"
"""Beside the verdicts: a node that was not heard within node_ttl."""

OTHER = "other"
"""In place of a word that this version does not know."""

PLANES = frozenset(
    {
        "cdi", "device_nodes", "host", "kernel_log", "kubelet.allocatable", "kubelet.checkpoint", "kubelet.pods", "mps",
        "node_object", "nvml", "pci", "pods", "processes",
    }
)  # fmt: skip
"""What agents tell the age of."""

_REASONS = frozenset(reason.value for reason in Reason)


class Collector:
    """Yields all families of one scrape."""

    def __init__(
        self,
        figures: Figures,
        *,
        refused: Callable[[], Mapping[str, int]],
        accepted: Callable[[], Mapping[str, int]],
        streams: Callable[[], int],
        lost_lines: Callable[[], int],
        outage: Outage,
        tally: Tally,
    ) -> None:
        self._figures = figures
        self._refused, self._accepted, self._streams = refused, accepted, streams
        self._lost_lines, self._outage, self._tally = lost_lines, outage, tally

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        scene = self._figures.scene
        if scene is not None:
            yield from _nodes(scene)
            yield from _causes(scene)
            yield from _gangs(scene)
        yield from self._own()

    def _own(self) -> Iterator[Metric]:
        figures = self._figures
        yield _histogram("muster_admitter_pass_seconds", "Duration of a decision pass.", figures.passes)
        yield _histogram("muster_admitter_wait_seconds", "From asking to the lease.", figures.waits)
        yield _counters("muster_admitter_decisions", "Decisions by kind.", "kind", figures.decisions)
        reasons = collections.Counter(dict.fromkeys((*REJECTIONS, "OutOf", OTHER), 0))
        for reason, number in figures.broken_promises.items():
            reasons["OutOf" if reason.startswith("OutOf") else _known(reason, REJECTIONS)] += number
        yield _counters("muster_broken_promises", "Released pods that a kubelet refused.", "reason", reasons)
        sight, released = self._outage.sight, self._outage.released
        yield _gauge("muster_admitter_seen_nodes", "Nodes with devices whose agent is heard and sees one.", sight.seen)
        yield _gauge("muster_admitter_known_nodes", "Nodes with devices.", sight.known)
        yield _gauge("muster_admitter_outage", "1 while queues that fail open let go.", int(self._outage.is_on))
        yield _counter("muster_unverified_releases", "Pods let go without a lease in an outage.", released)
        yield from _observed(self._tally)
        yield _counter("muster_admitter_failed_passes", "Passes that failed by a bug.", figures.failed_passes)
        yield _counters(
            "muster_admitter_confined_failures", "Bugs that stopped one key.", "part", figures.confined.failures
        )
        yield _counter("muster_admitter_lost_log_lines", "Decisions that could not be written.", self._lost_lines())
        yield _counters("muster_admitter_feed_messages", "Accepted messages of agents.", "kind", self._accepted())
        yield _counters("muster_admitter_feed_refusals", "Refused messages of agents.", "reason", self._refused())
        yield _gauge("muster_admitter_feed_streams", "Connected agents.", self._streams())
        used = process_limits.getrusage(process_limits.RUSAGE_SELF)
        yield _counter("muster_admitter_cpu_seconds", "Own processor time.", used.ru_utime + used.ru_stime)
        yield _gauge("muster_admitter_resident_bytes", "Own memory.", psutil.Process().memory_info().rss)


def _observed(tally: Tally) -> Iterator[Metric]:
    ends = CounterMetricFamily(
        "muster_observed_gangs", "Gangs that another scheduler started.", labels=["verdict", "outcome"]
    )
    for verdict in observe.Verdict:
        for outcome in observe.Outcome:
            ends.add_metric([verdict.value, outcome.value], tally.ends[verdict, outcome])
    yield ends
    words = (*(reason.value for reason in WaitReason), *(reason.value for reason in HoldReason))
    held = {**dict.fromkeys(words, 0), **tally.held}
    yield _gauges("muster_observed_held_gangs", "Gangs that would be held now.", "reason", held)


def _nodes(scene: Scene) -> Iterator[Metric]:
    verdicts = dict.fromkeys([STALE, *(verdict.value for verdict in Verdict)], 0)
    admissible: collections.Counter[str] = collections.Counter()
    outstanding: collections.Counter[str] = collections.Counter()
    for name, state in scene.view.nodes.items():
        verdicts[STALE if scene.view.is_stale(name) else state.report.verdict.value] += 1
        leases = scene.leases.get(name, ())
        for resource, report in state.report.resources.items():
            admissible[resource] += nodecapacity.admissible(scene.view, name, resource, leases)
            outstanding[resource] += nodecapacity.outstanding(report, leases, resource)
    yield _gauges("muster_admitter_nodes", "Nodes by verdict.", "verdict", verdicts)
    yield _gauges("muster_admitter_admissible_units", "Units that may still be admitted.", "resource", admissible)
    yield _gauges("muster_admitter_leased_units", "Leased and not yet counted.", "resource", outstanding)
    yield _gauge("muster_admitter_view_version", "Version of the cluster view.", scene.view.version)


def _causes(scene: Scene) -> Iterator[Metric]:
    """Yield what is wrong in the fleet, and how old its oldest reading of each plane is.

    Reasons and planes are an agent's words: one that we do not know is counted as such and makes no series of its own.
    """
    view = scene.view
    found: collections.Counter[tuple[str, ...]] = collections.Counter()
    ages: dict[str, float] = {}
    for name, state in view.nodes.items():
        if view.is_stale(name):
            continue
        report = state.report
        findings = (report.node_findings, *(resource.findings for resource in report.resources.values()))
        enforced = (item for group in findings for item in group if not item.observed)
        found.update({(item.verdict.value, _known(item.reason, _REASONS)) for item in enforced})
        for plane, age_ms in state.plane_age_ms.items():
            key = _known(plane, PLANES)
            ages[key] = max(ages.get(key, 0.0), age_ms / 1000 + max(0.0, view.now - state.heard_at))
    nodes = GaugeMetricFamily(
        "muster_admitter_node_findings", "Nodes with such a finding.", labels=["verdict", "reason"]
    )
    for words, number in sorted(found.items()):
        nodes.add_metric(words, number)
    yield nodes
    yield _gauges("muster_admitter_plane_age_seconds", "Oldest reading of a plane, of the nodes heard.", "plane", ages)


def _known(word: str, words: Collection[str]) -> str:
    return word if word in words else OTHER


def _gangs(scene: Scene) -> Iterator[Metric]:
    states = collections.Counter({state.value: 0 for state in GangState})
    reasons = collections.Counter({reason.value: 0 for reason in WaitReason})
    oldest: dict[str, float] = {}
    for record in scene.records:
        states[record.state.value] += 1
        if record.why is not None:
            reason = record.why.reason.value
            reasons[reason] += 1
            oldest[reason] = max(oldest.get(reason, 0.0), scene.at - record.timeline.asked.at)
    yield _gauges("muster_admitter_gangs", "Gangs by state.", "state", states)
    yield _gauges("muster_admitter_waiting_gangs", "Waiting gangs by reason.", "reason", reasons)
    yield _gauges("muster_admitter_oldest_wait_seconds", "The longest that a gang has waited.", "reason", oldest)
    held = sum(1 for record in scene.records if record.lease is not None)
    yield _gauge("muster_admitter_leases", "Gangs that hold a lease.", held)
    yield _gauge("muster_admitter_orphans", "Leases of an earlier term without a client.", scene.orphans)
    yield _gauge("muster_admitter_quarantined_nodes", "Nodes after a broken promise.", len(scene.view.barred))
    yield _gauge("muster_admitter_term", "The present term.", scene.term)
    yield _gauge("muster_admitter_open", "1 once the term grants; 0 while it listens.", int(scene.is_open))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key in sorted(values):
        family.add_metric([key], values[key])
    return family


def _counters(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key in sorted(values):
        family.add_metric([key], values[key])
    return family


def _histogram(name: str, text: str, values: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], values.buckets(), values.total)
    return family
