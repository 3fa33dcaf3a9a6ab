"""Labels, taints and cordons of all nodes, by column, so that a fleet is asked as quickly as a node.

Input: the NodeFacts of the nodes in row order. Output: for a pod's Constraints, which rows may take it and which rows it
would rather have; for a label, which rows share its value.

Invariant: the answer for a row is the answer of predicates.py for that node; only the number of questions differs.

Why columns: 5,000 nodes have 5,000 names and a handful of taint sets, pools and racks. A predicate is asked once for each
distinct value, and numpy spreads the answers.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from admitter.core import predicates
from admitter.core.predicates import NAME_FIELD, Refusal, Refused
from admitter.model.cluster import Constraints, Expression, NodeTerm
from admitter.model.nodefacts import NodeFacts
from muster.model import kube

Codes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_T = TypeVar("_T", bound=Hashable)

REFUSALS = tuple(Refused)
_KEPT_ANSWERS = 512
"""Distinct constraints that are remembered; a fleet has tens."""


class Marks:
    """Of the nodes of one moment. Never changes, but for what it remembers."""

    def __init__(self, names: Sequence[str], facts: Sequence[NodeFacts | None], *, is_ideal: bool) -> None:
        """`is_ideal`: as if no node were cordoned, leaving, or tainted for its state."""
        self._names = names
        self._facts = facts
        self._is_ideal = is_ideal
        self._known: Mask = np.fromiter((entry is not None for entry in facts), dtype=np.bool_, count=len(facts))
        self._columns: dict[str, tuple[Codes, list[str | None]]] = {}
        self._taints: tuple[Codes, list[tuple[tuple[kube.Taint, ...], bool]]] | None = None
        self._answers: dict[Hashable, npt.NDArray[Any]] = {}
        self._domains: dict[tuple[str, ...], tuple[Codes, list[str]]] = {}

    def shared(self, label: str) -> tuple[Codes, list[str | None]]:
        """Return each row's code and the value of each code; None: the label is not there."""
        if label not in self._columns:
            self._columns[label] = _coded([None if entry is None else entry.labels.get(label) for entry in self._facts])
        return self._columns[label]

    def domains(self, labels: tuple[str, ...]) -> tuple[Codes, list[str]]:
        """Return each row's domain and the domains' names; `labels` are the level's own, then those of coarser levels.

        A rack's name may come again in another block, so all of them together name a domain. A node without the
        level's own label is a domain of its own: who shares an unknown place shares nothing (NVIDIA-NeMo/RL#2924).
        """
        if labels not in self._domains:
            found = [None if entry is None else entry.labels for entry in self._facts]
            self._domains[labels] = _coded(
                [
                    f"node {name}"
                    if mine is None or labels[0] not in mine
                    else "/".join(mine.get(label, "-") for label in reversed(labels))
                    for name, mine in zip(self._names, found, strict=True)
                ]
            )
        return self._domains[labels]

    def refused(self, constraints: Constraints) -> Codes:
        """Return for each row the predicate that refuses the pod, as an index of REFUSALS; -1: none does."""
        key = (tuple(sorted(constraints.node_selector.items())), constraints.required, constraints.tolerations)
        return self._remembered(key, lambda: self._refused(constraints))

    def wished(self, constraints: Constraints) -> Mask:
        """Return the rows that fit everything that the pod or the node would rather have."""
        key = (constraints.preferred, constraints.tolerations)
        return self._remembered(key, lambda: self._wished(constraints))

    def refusal(self, constraints: Constraints, row: int) -> Refusal | None:
        """Return why one row may not take the pod."""
        facts = self._facts[row]
        if facts is None:
            return Refusal(reason=Refused.NO_NODE_OBJECT, detail="the API server does not know it")
        taints, is_cordoned = self._taints_of(facts)
        return predicates.taint_refusal(
            constraints.tolerations, taints, is_cordoned=is_cordoned
        ) or predicates.label_refusal(constraints, self._names[row], facts.labels)

    def _remembered(self, key: Hashable, answer: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        if key not in self._answers:
            if len(self._answers) >= _KEPT_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer()
        return self._answers[key]

    def _refused(self, constraints: Constraints) -> Codes:
        codes, sets = self._taint_sets()
        first = [
            predicates.taint_refusal(constraints.tolerations, taints, is_cordoned=is_cordoned)
            for taints, is_cordoned in sets
        ]
        by_taint = np.array([-1 if found is None else REFUSALS.index(found.reason) for found in first], dtype=np.int64)
        selected = np.ones(len(self._names), dtype=np.bool_)
        for key, value in constraints.node_selector.items():
            selected &= self._holds(Expression(key=key, operator="In", values=(value,)))
        liked = selected
        if constraints.required:
            liked = np.logical_or.reduce([self._term(term) for term in constraints.required])
        # The first of REFUSALS that applies, so the last to be written.
        result = np.where(liked, -1, REFUSALS.index(Refused.NODE_AFFINITY))
        result = np.where(selected, result, REFUSALS.index(Refused.NODE_SELECTOR))
        tainted = by_taint[codes]
        result = np.where(tainted >= 0, tainted, result)
        return np.where(self._known, result, REFUSALS.index(Refused.NO_NODE_OBJECT))

    def _wished(self, constraints: Constraints) -> Mask:
        codes, sets = self._taint_sets()
        welcome = [not predicates.is_unwelcome(constraints.tolerations, taints) for taints, _ in sets]
        mask = np.array(welcome, dtype=np.bool_)[codes]
        for term in constraints.preferred:
            mask = mask & self._term(term)
        return mask

    def _term(self, term: NodeTerm) -> Mask:
        if not term.labels and not term.fields:
            return np.zeros(len(self._names), dtype=np.bool_)
        parts = [self._holds(expression) for expression in term.labels]
        parts += [self._is_named(expression) for expression in term.fields]
        held: Mask = np.logical_and.reduce(parts)
        return held

    def _holds(self, expression: Expression) -> Mask:
        codes, values = self.shared(expression.key)
        return np.array([predicates.matches(expression, value) for value in values], dtype=np.bool_)[codes]

    def _is_named(self, expression: Expression) -> Mask:
        if expression.key != NAME_FIELD:
            return np.zeros(len(self._names), dtype=np.bool_)
        return np.array([predicates.matches(expression, name) for name in self._names], dtype=np.bool_)

    def _taint_sets(self) -> tuple[Codes, list[tuple[tuple[kube.Taint, ...], bool]]]:
        if self._taints is None:
            nothing: tuple[tuple[kube.Taint, ...], bool] = ((), False)
            self._taints = _coded([nothing if entry is None else self._taints_of(entry) for entry in self._facts])
        return self._taints

    def _taints_of(self, facts: NodeFacts) -> tuple[tuple[kube.Taint, ...], bool]:
        if not self._is_ideal:
            return facts.taints, facts.is_cordoned
        return tuple(taint for taint in facts.taints if not predicates.passes_by(taint)), False


def _coded(values: list[_T]) -> tuple[Codes, list[_T]]:
    """Return a code for each value, and the values by code in order of appearance."""
    known: dict[_T, int] = {}
    codes = np.fromiter((known.setdefault(value, len(known)) for value in values), dtype=np.int64, count=len(values))
    return codes, list(known)
