"""Name a snapshot by what it offers: a hash that another process, or a person with the same reports, comes to as well.

In: the view that a decision was taken from. Out: 32 hexadecimal digits.

Invariants: views that offer the same have the same hash, in whichever process and whatever their version; whatever bears on
capacity is in it (admits and the counts behind them, who is counted, free devices and how they are cut, topology, silence,
closed nodes, labels, taints and requests of Nodes). When a report was taken is not.

Why by node: a view is new with every delta, and of 5,000 nodes some tens have changed since the last decision. Nodes that are the
same objects keep their digests, so that a logged decision costs a walk over names (docs/admission.md, The decision log).

Not here: leases. The log itself has them, line by line.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from admitter.core.moved import moved
from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.model.nodefacts import NodeFacts
from muster.model.reading import Known, Reading
from muster.model.report import NodeReport, ResourceReport, Topology

_BYTES = 16
_Mark: TypeAlias = tuple[NodeReport, Topology, NodeFacts | None, bool, str]


class ViewHash:
    """Remembers the digests of one admitter's nodes. Nothing in here waits."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Mark, int]] = {}
        self._sum = 0
        self._last: tuple[Mapping[str, NodeState], Mapping[str, NodeFacts], Mapping[str, str]] = ({}, {}, {})
        self._stale: set[str] = set()

    def of(self, view: ClusterView) -> str:
        """Return the hash of a view."""
        facts = view.facts or {}
        states, old_facts, barred = self._last
        stale, was_stale = _stale(view), self._stale
        touched = moved(states, view.nodes) | moved(old_facts, facts) | moved(barred, view.barred) | (stale ^ was_stale)
        self._last, self._stale = (dict(view.nodes), dict(facts), view.barred), stale
        for name in touched:
            mark, digest = self._known.pop(name, (None, 0))
            state = view.nodes.get(name)
            if state is None:
                # What the API server knows and no agent has spoken for gives nothing, and is no part of what is offered.
                self._sum -= digest
                continue
            fresh = (state.report, state.topology, facts.get(name), name in stale, view.barred.get(name, ""))
            after = digest if mark is not None and _is_same(mark, fresh) else _of_node(name, fresh)
            self._known[name] = fresh, after
            self._sum += after - digest
        # A sum, so that one node's change costs one node; each digest has its node's name in it.
        return _digest((view.facts is not None, len(self._known), self._sum % 2 ** (8 * _BYTES))).hexdigest()


def _stale(view: ClusterView) -> set[str]:
    oldest = min((state.heard_at for state in view.nodes.values()), default=view.now)
    return {name for name in view.nodes if view.is_stale(name)} if view.now - oldest > view.node_ttl_seconds else set()


def _is_same(one: _Mark, other: _Mark) -> bool:
    return one[0] is other[0] and one[1] is other[1] and one[2] is other[2] and one[3:] == other[3:]


def _digest(value: object) -> "hashlib.blake2b":
    # The repr of tuples of str, int, float, bool and None is the same in every process; nothing else may come here.
    return hashlib.blake2b(repr(value).encode(), digest_size=_BYTES)


def _of_node(name: str, mark: _Mark) -> int:
    report, topology, facts, is_stale, barred = mark
    content = (
        name,
        is_stale,
        barred,
        report.verdict.value,
        tuple((resource, _of_resource(report.resources[resource])) for resource in sorted(report.resources)),
        tuple(sorted(_reasons(report))),
        tuple((device.uuid, device.parent, _of_shape(device.shape)) for device in report.devices if device.shape),
        tuple(sorted(_of_gpu(gpu) for gpu in topology.gpus)),
        _of_facts(facts) if facts is not None else (),
    )
    return int.from_bytes(_digest(content).digest())


def _of_resource(report: ResourceReport) -> tuple[object, ...]:
    counts = (
        report.admit_strict,
        report.admit_lenient,
        report.pick_risk,
        report.capacity,
        report.allocatable,
        report.advertised,
        report.present,
        report.allocated,
        report.usable,
        report.free,
    )
    return (
        report.verdict.value,
        tuple(map(_of_reading, counts)),
        tuple(sorted((pod.uid, pod.units) for pod in report.counted)),
        tuple(sorted(report.free_devices)),
        tuple(sorted((finding.reason, finding.observed) for finding in report.findings)),
    )


def _of_reading(reading: Reading[Any]) -> object:
    return reading.value if isinstance(reading, Known) else f"unknown: {reading.reason}"


def _reasons(report: NodeReport) -> Iterable[tuple[str, bool]]:
    return ((finding.reason, finding.observed) for finding in report.node_findings)


def _of_shape(shape: Any) -> tuple[object, ...]:
    return (shape.profile, *map(_of_reading, (shape.compute_slices, shape.gpu_slices, shape.memory_bytes)))


def _of_gpu(gpu: Any) -> tuple[object, ...]:
    return (
        gpu.uuid,
        gpu.product,
        *(str(_of_reading(each)) for each in (gpu.memory_bytes, gpu.numa_node)),
        gpu.island,
        gpu.clique,
    )


def _of_facts(facts: NodeFacts) -> tuple[object, ...]:
    return (
        _sorted(facts.labels),
        tuple(sorted((taint.key, taint.value, taint.effect) for taint in facts.taints)),
        facts.is_cordoned,
        _sorted(facts.allocatable),
        _sorted(facts.requested),
        tuple(sorted(facts.counted)),
        facts.topology_policy,
    )


def _sorted(mapping: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(mapping.items()))
