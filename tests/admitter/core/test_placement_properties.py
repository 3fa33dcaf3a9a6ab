"""What holds of every placement, whatever the fleet and the gang (design.md section 6, topology.md section 8)."""

import dataclasses

import hypothesis
from hypothesis import strategies as st

from admitter.core import admit, offers, predicates
from admitter.model import gang as gangs
from admitter.model.cluster import Constraints, Expression, NodeTerm, Toleration
from admitter.model.decision import Grant, NetworkLevel, Policy
from admitter.model.nodefacts import NodeFacts
from muster.model import kube
from muster.model.report import GpuTopology, Topology
from tests.admitter.clusters import GPU, NOW, TTL, a_gang, a_lease, a_node, a_resource, a_view

POLICY = Policy(levels=(NetworkLevel(name="rack", label="rack"),))
NAMES = ("a", "b", "c", "d", "e")

CONSTRAINTS = st.builds(
    Constraints,
    node_selector=st.dictionaries(st.just("pool"), st.sampled_from("xy"), max_size=1),
    required=st.sampled_from([(), (), (NodeTerm(labels=(Expression(key="pool", operator="NotIn", values=("y",)),)),)]),
    tolerations=st.sampled_from([(), (Toleration(key="t", operator="Exists"),)]),
    unmodelled=st.sampled_from([(), (), ("podAffinity",)]),
)
FACTS = st.builds(
    NodeFacts,
    labels=st.dictionaries(st.sampled_from(["rack", "pool"]), st.sampled_from("xy"), max_size=2),
    taints=st.sampled_from([(), (), (kube.Taint(key="t", effect="NoSchedule"),)]),
    is_cordoned=st.sampled_from([False, False, False, True]),
    allocatable=st.fixed_dictionaries({"cpu": st.integers(0, 12), "pods": st.integers(0, 6)}),
    requested=st.fixed_dictionaries({"cpu": st.integers(0, 3)}),
)


@st.composite
def fleets(draw, facts=FACTS):
    """Up to five nodes, some stale, blind, cut in MIG instances, shared or without facts."""
    nodes, known = [], {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5)):
        free = draw(st.integers(0, 8))
        kind = draw(st.sampled_from(["GPU", "GPU", "GPU", "GPU", "MIG", "shared"]))
        ids = {"GPU": "GPU-{}", "MIG": "MIG-{}", "shared": "GPU-{}::0"}[kind]
        resource = a_resource(
            draw(st.sampled_from([free, free, free, None])), devices=tuple(ids.format(index) for index in range(free))
        )
        node = a_node(name, {GPU: resource}, heard=NOW - draw(st.sampled_from([0, 0, 0, 60])))
        gpus = tuple(
            GpuTopology(uuid=f"GPU-{index}", island=draw(st.sampled_from(["i", "i", "j", ""])), clique="")
            for index in range(free)
        )
        nodes.append(dataclasses.replace(node, topology=Topology(generation=1, gpus=gpus)))
        if draw(st.integers(0, 9)):
            known[name] = draw(facts)
    return a_view(*nodes, facts=known)


@st.composite
def podsets(draw):
    wish = draw(st.sampled_from([None, None, "node", "island", "rack", "clique"]))
    return gangs.Podset(
        name=draw(st.sampled_from("pq")),
        count=draw(st.integers(1, 6)),
        request=draw(st.builds(gangs.GpuRequest, gpus=st.integers(1, 4))),
        topology=None if wish is None else gangs.TopologyWish(level=wish, required=draw(st.booleans())),
        pod_class=draw(st.sampled_from(list(gangs.PodClass))),
        requests=draw(st.sampled_from([{}, {"cpu": 1}, {"cpu": 3}])),
        constraints=draw(CONSTRAINTS),
    )


GANGS = st.lists(podsets(), min_size=1, max_size=2, unique_by=lambda podset: podset.name).map(
    lambda sets: a_gang(*sets)
)
LEASES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6), max_size=3)


def supply_of(view, leases=None):
    return offers.of_view(view, leases or {}, POLICY)


@hypothesis.given(fleets(), GANGS, LEASES)
@hypothesis.settings(max_examples=200)
def test_a_grant_breaks_no_promise(view, gang, held):
    leases = {node: (a_lease(units),) for node, units in held.items()}
    supply = supply_of(view, leases)
    answer = admit.plan(gang, supply, POLICY)
    if not isinstance(answer, Grant):
        return
    sets = {podset.name: podset for podset in gang.podsets}
    pods, gpus, cpus, slots = dict.fromkeys(sets, 0), {}, {}, {}
    for place in answer.placements:
        podset, state, facts = sets[place.podset], view.nodes[place.node], view.facts[place.node]
        report = state.report.resources[place.resource]
        pods[place.podset] += place.pods
        gpus[place.node] = gpus.get(place.node, 0) + place.units
        cpus[place.node] = cpus.get(place.node, 0) + place.pods * podset.requests.get("cpu", 0)
        slots[place.node] = slots.get(place.node, 0) + place.pods
        assert NOW - state.heard_at <= TTL
        assert not any(device.startswith("MIG-") for device in report.free_devices)
        assert podset.pod_class is gangs.PodClass.SHARED or not any("::" in device for device in report.free_devices)
        constraints = podset.constraints
        assert predicates.taint_refusal(constraints.tolerations, facts.taints, is_cordoned=facts.is_cordoned) is None
        assert predicates.label_refusal(constraints, place.node, facts.labels) is None
        if constraints.unmodelled:
            assert place.node in place.pin
        else:
            assert place.pin == ()
    assert pods == {name: podset.count for name, podset in sets.items()}
    for node, units in gpus.items():
        facts, report = view.facts[node], view.nodes[node].report.resources[GPU]
        assert units <= report.admit_strict.value - held.get(node, 0)
        # A pod that asks for none fits beside pods that have taken too much.
        assert cpus[node] <= max(0, facts.allocatable["cpu"] - facts.requested["cpu"])
        assert slots[node] <= facts.allocatable["pods"]
    for podset in gang.podsets:
        if podset.topology is not None and podset.topology.required:
            assert_one_domain(podset, {p.node for p in answer.placements if p.podset == podset.name}, view)
    assert admit.holds(gang, answer.placements, supply, POLICY)
    assert admit.fits(gang, supply, POLICY)


def assert_one_domain(podset, nodes, view):
    if podset.topology.level == "rack":
        racks = {view.facts[node].labels.get("rack", f"only {node}") for node in nodes}
        assert len(racks) == 1
        return
    assert len(nodes) == 1, "no fabric here joins two nodes"
    (node,) = nodes
    if podset.topology.level != "node" and podset.count * podset.units_per_pod > 1:
        state = view.nodes[node]
        islands = {gpu.uuid: gpu.island for gpu in state.topology.gpus}
        free = {islands.get(device, "") for device in state.report.resources[GPU].free_devices}
        assert len(free) == 1
        assert free != {""}


@hypothesis.given(fleets(), GANGS, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_are_told_does_not_matter(view, gang, random):
    names = list(view.nodes)
    random.shuffle(names)
    shuffled = dataclasses.replace(
        view,
        nodes={name: view.nodes[name] for name in names},
        facts={name: view.facts[name] for name in reversed(names) if name in view.facts},
    )
    assert admit.plan(gang, supply_of(view), POLICY) == admit.plan(gang, supply_of(shuffled), POLICY)


@hypothesis.given(fleets(), GANGS)
def test_a_refusal_gives_every_node_without_room_one_reason(view, gang):
    answer = admit.plan(gang, supply_of(view), POLICY)
    if isinstance(answer, Grant):
        return
    assert sum(answer.reasons.values()) == len(answer.excluded) + answer.excluded_more
    assert [node.node for node in answer.excluded] == sorted(node.node for node in answer.excluded)
    assert all(node.reason in answer.reasons and node.detail for node in answer.excluded)
    assert len(answer.excluded) + answer.nodes_usable == len(view.nodes)
    assert not admit.fits(gang, supply_of(view), POLICY)


@hypothesis.given(fleets(), GANGS, st.sampled_from(NAMES), st.integers(1, 4))
def test_more_of_a_node_turns_no_yes_into_a_no(view, gang, name, more):
    """More GPUs of the same kind, more cpu, more slots on one node."""
    if (
        name not in view.facts
        or name not in view.nodes
        or not isinstance(admit.plan(gang, supply_of(view), POLICY), Grant)
    ):
        return
    facts = view.facts[name]
    richer = {resource: units + more for resource, units in facts.allocatable.items()}
    facts = {**view.facts, name: dataclasses.replace(facts, allocatable=richer)}
    report = view.nodes[name].report
    resource = report.resources[GPU]
    if hasattr(resource.admit_strict, "value"):
        grown = dataclasses.replace(
            resource, admit_strict=dataclasses.replace(resource.admit_strict, value=resource.admit_strict.value + more)
        )
        report = dataclasses.replace(report, resources={GPU: grown})
    nodes = {**view.nodes, name: dataclasses.replace(view.nodes[name], report=report)}
    assert isinstance(admit.plan(gang, supply_of(dataclasses.replace(view, nodes=nodes, facts=facts)), POLICY), Grant)


@hypothesis.given(st.lists(fleets(), min_size=1, max_size=4), GANGS, st.lists(LEASES, min_size=4, max_size=4))
def test_a_layout_that_is_renewed_says_what_a_new_one_says(views, gang, held):
    """Nodes come, go, change and fall silent: the kept columns never differ from columns made from nothing."""
    layout = offers.Layout(POLICY)
    for view, units in zip(views, held, strict=False):
        leases = {node: (a_lease(count),) for node, count in units.items()}
        kept, ideal = layout.supply(view, leases)
        fresh, fresh_ideal = offers.Layout(POLICY).supply(view, leases)
        for mine, other in ((kept, fresh), (ideal, fresh_ideal)):
            assert dict(mine.nodes) == dict(other.nodes)
            assert mine.table.names == other.table.names
            for name, column in other.table.units.items():
                assert column.tolist() == mine.table.column(name).tolist()
            assert admit.plan(gang, mine, POLICY) == admit.plan(gang, other, POLICY)


@hypothesis.given(st.integers(0, 3), st.sampled_from([100_000, 1_000_000]))
def test_a_gang_of_a_million_is_refused_in_its_turn(free, count):
    answer = admit.plan(a_gang(count=count), supply_of(a_view(("a", free), ("b", 8))), POLICY)
    assert (answer.placed, answer.units_admissible) == (free + 8, free + 8)
