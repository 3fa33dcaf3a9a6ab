"""A fleet that exists only as values: nodes with GPUs, cpu and memory in racks and blocks, and the gangs that come and go.

What agents and the API server would say of 5,000 nodes is kept here and changed when a gang starts or ends, so that the
placement benchmark measures the admitter's decision and nothing else.
"""

import dataclasses
import datetime
import random

from admitter.model.cluster import Constraints, Expression, NodeTerm, Toleration
from admitter.model.gang import Gang, GpuRequest, Podset, TopologyWish
from admitter.model.lease import Placement
from admitter.model.nodecapacity import ClusterView, Epoch, NodeState
from admitter.model.nodefacts import POD_SLOTS, BoundPod, NodeFacts
from muster.model import codec, kube
from muster.model.reading import Known
from muster.model.report import CountedPod, GpuTopology, NodeReport, ResourceReport, Topology, Verdict

GPU = "nvidia.com/gpu"
GIB = 2**30
RACK = "topology.example.com/rack"
BLOCK = "topology.example.com/block"
NODES_PER_RACK = 18
"""As an NVL72 rack has trays (topology.md section 2)."""
RACKS_PER_BLOCK = 16
_TAKEN = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
_ALWAYS = 1e12
"""Nobody is stale here."""
_TAINT = kube.Taint(key=GPU, value="present", effect="NoSchedule")
_TOLERATED = (Toleration(key=GPU, operator="Exists", effect="NoSchedule"),)
_POOLS = ("train", "train", "train", "mixed")
_SIZES = ((1, 40), (2, 8), (4, 8), (8, 22), (16, 8), (64, 7), (256, 5), (1024, 2))
"""GPUs of a gang and how often it comes: larger than in the traces (traces.md section 1.3), where 83 % ask for one."""


@dataclasses.dataclass(kw_only=True)
class Occupied:
    """What runs on one node."""

    units: dict[str, int] = dataclasses.field(default_factory=dict)
    """By pod."""
    requests: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)


class Fleet:
    def __init__(self, nodes: int, gpus: int = 8) -> None:
        self.gpus = gpus
        self.version = 0
        self._uuids = tuple(f"GPU-{index:08d}" for index in range(gpus))
        self._topology = Topology(
            generation=1,
            gpus=tuple(
                GpuTopology(uuid=uuid, numa_node=Known(2 * index // gpus), island="nvlink-0")
                for index, uuid in enumerate(self._uuids)
            ),
        )
        self._occupied = {f"n{index:05d}": Occupied() for index in range(nodes)}
        self._states: dict[str, NodeState] = {}
        self._facts: dict[str, NodeFacts] = {}
        for index, name in enumerate(self._occupied):
            self._facts[name] = self._bare(index, name)
            self._tell(name)

    @property
    def names(self) -> list[str]:
        """Every node."""
        return list(self._occupied)

    @property
    def used(self) -> int:
        """GPUs in use."""
        return sum(sum(node.units.values()) for node in self._occupied.values())

    def view(self, now: float) -> ClusterView:
        """Return the fleet as the admitter would see it."""
        return ClusterView(
            version=self.version,
            now=now,
            node_ttl_seconds=15.0,
            nodes=dict(self._states),
            facts=dict(self._facts),
        )

    def start(self, gang: Gang, placements: tuple[Placement, ...]) -> list[tuple[str, str, str]]:
        """Let the pods of a gang run; return (podset, uid, node) of each."""
        podsets = {podset.name: podset for podset in gang.podsets}
        members = []
        for place in placements:
            node = self._occupied[place.node]
            for number in range(place.pods):
                uid = f"{gang.name}/{place.podset}/{place.node}/{number}"
                node.units[uid] = place.units_per_pod
                node.requests[uid] = {**podsets[place.podset].requests, GPU: place.units_per_pod}
                members.append((place.podset, uid, place.node))
            self._tell(place.node)
        return members

    def end(self, gang: Gang, placements: tuple[Placement, ...]) -> None:
        """Let the pods of a gang be gone."""
        for place in placements:
            node = self._occupied[place.node]
            for number in range(place.pods):
                node.units.pop(f"{gang.name}/{place.podset}/{place.node}/{number}", None)
                node.requests.pop(f"{gang.name}/{place.podset}/{place.node}/{number}", None)
            self._tell(place.node)

    def flap(self, name: str) -> None:
        """Let a pod that is no gang's come to a node, or go from it."""
        node = self._occupied[name]
        if "stranger" in node.units:
            del node.units["stranger"]
        elif sum(node.units.values()) < self.gpus:
            node.units["stranger"] = 1
        self._tell(name)

    def _tell(self, name: str) -> None:
        """Have the node's agent and the API server say what is so."""
        self.version += 1
        node = self._occupied[name]
        free = self.gpus - sum(node.units.values())
        size, left = Known(self.gpus), Known(free)
        report = ResourceReport(
            verdict=Verdict.OK,
            admit_strict=left,
            admit_lenient=left,
            pick_risk=Known(0.0),
            capacity=size,
            allocatable=size,
            advertised=size,
            present=size,
            allocated=Known(self.gpus - free),
            usable=size,
            free=left,
            free_devices=self._uuids[:free],
            counted=tuple(CountedPod(uid=uid, units=units) for uid, units in node.units.items()),
        )
        self._states[name] = NodeState(
            node=name,
            epoch=Epoch(boot_id="boot", start_counter=1),
            sequence=self.version,
            report=NodeReport(node=name, taken_at=_TAKEN, verdict=Verdict.OK, resources={GPU: report}),
            topology=self._topology,
            heard_at=_ALWAYS,
            snapshot_term=1,
        )
        requested = {POD_SLOTS: 8 + len(node.units), "cpu": 4000, "memory": 16 * GIB}
        for requests in node.requests.values():
            for resource, units in requests.items():
                requested[resource] = requested.get(resource, 0) + units
        self._facts[name] = dataclasses.replace(
            self._facts[name],
            requested=codec.freeze(requested),
            counted=codec.freeze(dict.fromkeys(node.units, BoundPod())),
        )

    def _bare(self, index: int, name: str) -> NodeFacts:
        rack = index // NODES_PER_RACK
        labels = {
            "kubernetes.io/hostname": name,
            "example.com/pool": _POOLS[rack % len(_POOLS)],
            RACK: f"r{rack % RACKS_PER_BLOCK:02d}",
            BLOCK: f"b{rack // RACKS_PER_BLOCK:02d}",
        }
        allocatable = {GPU: self.gpus, "cpu": 192_000, "memory": 2000 * GIB, POD_SLOTS: 110}
        return NodeFacts(labels=codec.freeze(labels), taints=(_TAINT,), allocatable=codec.freeze(allocatable))


def a_gang(rng: random.Random, number: int) -> Gang:
    """Return a gang as a tenant would ask for it: sizes, levels, selectors and odd cpu requests."""
    units = rng.choices([size for size, _ in _SIZES], [weight for _, weight in _SIZES])[0]
    each = min(units, 8)
    count = max(1, units // 8)
    wish = None
    if 1 < count <= NODES_PER_RACK:
        wish = rng.choice((None, TopologyWish(level="rack", required=False), TopologyWish(level="rack", required=True)))
    required: tuple[NodeTerm, ...] = ()
    if rng.random() < 0.3:
        required = (NodeTerm(labels=(Expression(key="example.com/pool", operator="In", values=("train",)),)),)
    constraints = Constraints(required=required, tolerations=_TOLERATED)
    requests = codec.freeze({"cpu": each * rng.randrange(4, 20) * 1000, "memory": each * rng.randrange(16, 200) * GIB})

    def podset(name: str, pods: int, gpus: int) -> Podset:
        return Podset(
            name=name,
            count=pods,
            request=GpuRequest(gpus=gpus),
            topology=wish,
            requests=requests,
            constraints=constraints,
            max_runtime_seconds=rng.choice((None, 3600.0, 4 * 3600.0, 24 * 3600.0)),
        )

    podsets: tuple[Podset, ...] = (podset("worker", count, each),)
    if count > 1 and rng.random() < 0.2:
        podsets = (podset("driver", 1, 1), *podsets)
    return Gang(namespace=f"team-{rng.randrange(20)}", name=f"g{number}", request_id="r", podsets=podsets)


def enlarged(gang: Gang, podset: Podset, pods: int) -> Gang:
    """Return the gang with so many whole nodes of one podset: more than a fleet in use has free."""
    large = dataclasses.replace(podset, count=pods, request=GpuRequest(gpus=8), topology=None, constraints=_OPEN)
    return dataclasses.replace(gang, podsets=(large,))


_OPEN = Constraints(tolerations=_TOLERATED)
