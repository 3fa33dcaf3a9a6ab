"""What the nodes can still give, laid out for placement: one `Offer` for every resource of every node.

Values only. A Supply is made from one ClusterView and the leases of that moment (core/offers.py); a decision sees nothing
else, so its answer depends on nothing else.
"""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigShape:
    """What one device of a MIG resource is at least."""

    compute_slices: int
    memory_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One resource of one node."""

    resource: str
    strict: int
    """Units that may be admitted whoever picks the device, less what is leased and not yet counted."""
    lenient: int = 0
    """The same for a podset that takes the risk of a bad pick; 0 where the risk is above policy."""
    own: int = 0
    """What the node itself admits strictly, before leases."""
    reason: str = "Full"
    """Why it gives nothing, when it gives nothing."""
    detail: str = ""
    devices: tuple[str, ...] = ()
    """Free ids: the forecast."""
    shared: bool = False
    """Replicas of a GPU (time-slicing, MPS), not GPUs."""
    whole: bool = True
    """No MIG instance among its ids."""
    mig: MigShape | None = None
    island: str = ""
    """The one NVLink island that holds every free device: then whatever the kubelet picks is in it."""
    clique: str = ""
    """The one fabric clique that holds every free device."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeOffers:
    node: str
    offers: Mapping[str, Offer]
    """By resource."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    version: int
    """Of the ClusterView it was made from."""
    nodes: Mapping[str, NodeOffers]
