"""Show what the leader says on Nodes, and what the breaker holds, as Prometheus metrics.

In: the newest NodeScene, the breaker's ruling, counters of requests. Out: families made for one scrape.

Invariant: labels are bounded: conditions, statuses, reasons for withholding, kinds and outcomes of requests, never a node.
What accounts for a hold is named by agents, but only what has turned many nodes becomes a hold. docs/metrics-admitter.md
lists every metric and label; a test compares.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from admitter.core.taints import Withheld
from admitter.model.ruling import Ruling
from admitter.publish.nodefigures import NodeFigures, NodeScene
from muster.model.nodeconditions import ConditionType, Status


class NodeCollector:
    """Yields the families of one scrape."""

    def __init__(self, figures: NodeFigures, ruling: Callable[[], Ruling]) -> None:
        self._figures = figures
        self._ruling = ruling

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from _breaker(self._ruling())
        if self._figures.scene is not None:
            yield from _scene(self._figures.scene)
        requests = CounterMetricFamily(
            "muster_node_writes", "Requests that write about Nodes.", labels=["kind", "outcome"]
        )
        for (kind, outcome), number in sorted(self._figures.requests.items()):
            requests.add_metric([kind, outcome], number)
        yield requests
        failed = self._figures.failed_looks
        yield CounterMetricFamily("muster_node_failed_looks", "Looks at the nodes that failed by a bug.", value=failed)


def _breaker(ruling: Ruling) -> Iterator[Metric]:
    holding = int(bool(ruling.holds))
    yield GaugeMetricFamily("muster_breaker_holding", "1 while Muster holds nodes because it doubts itself.", holding)
    held = GaugeMetricFamily(
        "muster_breaker_held_nodes", "Held nodes by what accounts for them.", labels=["ground", "culprit"]
    )
    for hold in ruling.holds:
        held.add_metric([hold.ground.value, hold.culprit[:80]], len(hold.nodes))
    yield held


def _scene(scene: NodeScene) -> Iterator[Metric]:
    conditions = GaugeMetricFamily(
        "muster_node_conditions", "Nodes by condition and status.", labels=["condition", "status"]
    )
    for name in ConditionType:
        for status in Status:
            conditions.add_metric([name.value, status.value], scene.conditions.get((name.value, status.value), 0))
    yield conditions
    yield _gauge("muster_node_taints", "Nodes with our taint.", scene.tainted)
    yield _gauge("muster_node_taint_cap", "Most nodes that may have it.", scene.cap)
    reasons = {why.value: scene.withheld.get(why.value, 0) for why in Withheld}
    yield _gauges("muster_node_taints_withheld", "Nodes that are not tainted, and why.", "reason", reasons)
    yield _gauge("muster_node_write_backlog", "Writes that are due and have to wait.", scene.backlog)
    yield _gauge("muster_node_foreign_conditions", "Conditions of our names that others own.", scene.foreign)
    yield _gauges("muster_node_write_rest_seconds", "How long a kind rests yet.", "kind", scene.resting)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key in sorted(values):
        family.add_metric([key], values[key])
    return family
