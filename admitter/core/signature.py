"""What makes two gangs the same question: their podsets, as far as placement looks at them.

Invariant: gangs of one signature get the same plan from one supply; so in one pass, where the supply only shrinks, a gang
whose signature was refused is refused.
"""

from collections.abc import Hashable

from admitter.model.cluster import Constraints
from admitter.model.gang import Gang, Podset


def of(gang: Gang) -> Hashable:
    """Return a value that is equal for gangs that ask for the same."""
    return tuple(_of_podset(podset) for podset in gang.podsets)


def where(constraints: Constraints) -> Hashable:
    """Return a value that is equal for constraints that are equal."""
    return (
        tuple(sorted(constraints.node_selector.items())),
        constraints.required,
        constraints.preferred,
        constraints.tolerations,
        constraints.unmodelled,
    )


def _of_podset(podset: Podset) -> Hashable:
    return (
        podset.name,
        podset.count,
        podset.request,
        podset.topology,
        podset.pod_class,
        tuple(sorted(podset.requests.items())),
        where(podset.constraints),
    )
