"""Kubernetes quantities as whole numbers, and what a pod asks of its node.

In: texts such as `500m`, `64Gi`, `8`. Out: thousandths for cpu, whole units or bytes for everything else; fractions are
rounded up, as the scheduler does.

Invariants: a text that is no quantity is left out, never 0: an absent key and a zero are different things (faults.md S2).
No number is above MOST, whatever a pod asks for: what is counted on goes into 64 bits, in arrays and on the wire.

Not here: resources resized in place; extended resources cannot be.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from lightkube.models import core_v1
from lightkube.utils.quantity import parse_quantity

CPU = "cpu"
MOST = 2**50
"""More than any node has (a pebibyte, a million million CPUs), and thousands of it fit in 64 bits."""


@functools.lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int | None:
    """Return a quantity in the resource's unit; None if it is none.

    >>> amount("cpu", "500m"), amount("memory", "1Ki"), amount("nvidia.com/gpu", "8"), amount("nvidia.com/gpu", "x")
    (500, 1024, 8, None)
    >>> amount("nvidia.com/gpu", "9223372036854775807") == amount("cpu", "10P") == MOST
    True
    """
    try:
        number = parse_quantity(text)
    except (ValueError, ArithmeticError):
        return None
    return None if number is None else min(MOST, math.ceil(number * 1000 if resource == CPU else number))


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Return what can be read of a resource list."""
    pairs = ((name, amount(name, str(text))) for name, text in (quantities or {}).items())
    return {name: number for name, number in pairs if number is not None}


def is_extended(resource: str) -> bool:
    """Return whether a resource is a device plugin's, or DRA's under a plugin's name.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu"), is_extended("hugepages-2Mi")
    (True, False, False)
    """
    return "/" in resource


def of_container(container: core_v1.Container) -> dict[str, int]:
    """Return a container's requests; the API server has filled them in from limits."""
    return amounts(container.resources.requests if container.resources is not None else None)


def of_pod(spec: core_v1.PodSpec) -> dict[str, int]:
    """Return what the scheduler counts for a pod.

    Init containers run one by one, each beside the sidecars that started before it; app containers run beside all sidecars.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.initContainers or ():
        asked = of_container(container)
        if container.restartPolicy == "Always":
            sidecars = _sum((sidecars, asked))
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum((sidecars, asked)))
    total = _most(peak, _sum((sidecars, *(of_container(container) for container in spec.containers))))
    if spec.resources is not None:
        # Requests of the whole pod take the place of its containers'.
        total |= amounts(spec.resources.requests)
    return _sum((total, amounts(spec.overhead)))


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = min(MOST, total.get(name, 0) + number)
    return total


def _most(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {*left, *right}}
