"""What an API server says it was asked: requests by verb and resource, writes, open watches.

In: a running cluster. Out: `Cost`, the difference of two looks at its own counters (`apiserver_request_total`,
`apiserver_longrunning_requests`).
"""

import collections
import dataclasses
import re

from hack.cluster import parts, pki, run

WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
_LINE = re.compile(r"^(apiserver_request_total|apiserver_longrunning_requests)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Counts of one look, or of the time between two."""

    requests: collections.Counter[tuple[str, str]]
    """(verb, resource or resource/subresource) -> how many have been answered."""
    watches: int
    """Open at the time of the look."""

    def since(self, before: "Cost") -> "Cost":
        """Return what has come since an earlier look."""
        return Cost(requests=self.requests - before.requests, watches=self.watches)

    @property
    def writes(self) -> int:
        return sum(count for (verb, _), count in self.requests.items() if verb in WRITES)

    def of(self, resource: str) -> dict[str, int]:
        """Return the requests for one resource by verb."""
        return {verb: count for (verb, name), count in sorted(self.requests.items()) if name == resource}


def parse(metrics: str) -> Cost:
    """Return what an API server's metrics say.

    >>> cost = parse('apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 7')
    >>> cost.writes, cost.of("pods/binding")
    (7, {'POST': 7})
    """
    requests: collections.Counter[tuple[str, str]] = collections.Counter()
    watches = 0
    for name, text, value in _LINE.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if name == "apiserver_longrunning_requests":
            watches += int(float(value)) if labels.get("verb") == "WATCH" else 0
            continue
        what = "/".join(filter(None, (labels.get("resource", ""), labels.get("subresource", ""))))
        requests[labels.get("verb", ""), what] += int(float(value))
    return Cost(requests=requests, watches=watches)


def look(cluster: run.Cluster) -> Cost:
    """Ask a cluster's API server."""
    keys = cluster.folder / "pki"
    admin = pki.Pair(certificate=keys / "user-admin.pem", key=keys / "user-admin.key")
    opener = parts.opener(parts.client_context(keys / "ca.pem", admin))
    with opener.open(cluster.part("kube-apiserver").probe.replace("/readyz", "/metrics"), timeout=60) as answer:
        return parse(answer.read().decode())
