"""What the nodes can still give, laid out for placement: one `Offer` for every resource of every node.

Values only. A Supply is made from one ClusterView and the leases of that moment (core/offers.py); a decision sees nothing
else, so its answer depends on nothing else. The same numbers stand by column in a core.table.Table, which is what is
searched; the offers say why a node gives nothing, and which of its devices are free.
"""

import dataclasses
from collections.abc import Mapping

from admitter.model.nodefacts import NodeFacts
from muster.model import codec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigShape:
    """What one device of a MIG resource is at least."""

    compute_slices: int
    memory_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the devices of an offer are, whatever their number."""

    is_shared: bool = False
    """Replicas of a GPU (time-slicing, MPS), not GPUs."""
    is_whole: bool = True
    """No MIG instance among its ids."""
    mig: MigShape | None = None
    island: str = ""
    """The one NVLink island that holds every free device: then whatever the kubelet picks is in it."""
    clique: str = ""
    """The one fabric clique that holds every free device."""
    numa: tuple[int, ...] = ()
    """Free devices of each NUMA node, where the kubelet refuses a pod over more of them than it must; empty: it does not."""
    numa_size: int = 0
    """Devices of the largest NUMA node, free or not."""
    has_numa_islands: bool = False
    """The free devices of each NUMA node are of one NVLink island."""
    is_single_numa: bool = False
    """The kubelet refuses every pod over two NUMA nodes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One resource of one node, as its agent reports it."""

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
    grows: bool = False
    """What its holders give back will be admitted again: it is heard, read and without a fault."""
    shape: Shape = Shape()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeOffers:
    node: str
    offers: Mapping[str, Offer]
    """By resource, as far as the agent reports it."""
    rest: Mapping[str, int] = codec.mapping()
    """What is left of every other resource by the API server's arithmetic, pod slots among them."""
    facts: NodeFacts | None = None
    """None: the API server does not know the node, or there is none."""
