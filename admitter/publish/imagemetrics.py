"""Show what nodes are told and asked of images, as Prometheus metrics.

In: counters of our own events, and what the last plan of hints came to. Out: families made for one scrape.

Invariant: labels are bounded: reasons, and what is not one of them is `other`. docs/images.md lists every metric and label;
a test compares.

Not here: gangs that are held for images; they are waiting gangs by reason (metrics.py).
"""

import collections
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from admitter.core.hints import Hints
from admitter.model.content import Answer, WarmList

RESOLVED = "Resolved"
OTHER = "other"
REASONS = (
    RESOLVED,
    "HostHeld",
    "NotFound",
    "RegistryUnreachable",
    "Stalled",
    "TooManyRequests",
    "Unauthorized",
    "WarmerUnavailable",
)
"""What a warmer answers, most often."""


class ImageFigures:
    """Counters of one process."""

    def __init__(self) -> None:
        self.hints = Hints()
        self.answers: collections.Counter[str] = collections.Counter(dict.fromkeys((*REASONS, OTHER), 0))
        self.secrets_shown = 0

    def heard(self, answers: Iterable[Answer]) -> None:
        """Count what a warmer answered."""
        for answer in answers:
            reason = answer.reason or RESOLVED
            self.answers[reason if reason in REASONS else OTHER] += 1

    def sent(self, wanted: WarmList) -> None:
        """Count the secrets in a list."""
        shown = [each.credential for each in wanted.images] + [each.credential for each in wanted.questions]
        self.secrets_shown += len(shown) - shown.count(None)

    def collect(self) -> Iterator[Metric]:
        """Yield the families of one scrape."""
        images = self.hints.images
        yield _gauge("muster_admitter_hinted_nodes", "Nodes that are told to warm images.", len(images))
        yield _gauge("muster_admitter_hints", "Images that they are told, a node each.", sum(map(len, images.values())))
        refused = len(self.hints.refused)
        yield _gauge("muster_admitter_refused_hints", "Kept back by the verification or a budget.", refused)
        answers = CounterMetricFamily("muster_admitter_image_answers", "What images are, by reason.", labels=["reason"])
        for reason in sorted(self.answers):
            answers.add_metric([reason], self.answers[reason])
        yield answers
        shown = self.secrets_shown
        yield CounterMetricFamily("muster_admitter_pull_secrets_sent", "Pull secrets sent to nodes.", value=shown)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
