"""One GPU promised twice (faults.md A14, G2), and replicas, which are not that (F1).

Input: the ids of all resource names and DRA slices, joined to units. Output: units that two promises reach.

Invariant: replicas of one name share a GPU by design. Between names, a unit that somebody holds under one of them is
taken for the others; one that nobody holds is admitted strictly under one name at most, so that no two admits together
exceed the hardware.

Why the order of names is fixed: which name gives a unit away first must not change with who holds what, or a lease under
one name would meet an admit under the other.
"""

from collections.abc import Iterator

from agent.core import join, shape
from agent.core.context import Context, named
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.snapshot import ResourceView, Snapshot
from muster.model.reading import Known, Unknown
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

TWO_NAMES = Rule(
    id="A14",
    cause="TwoPluginsTwoNames",
    verdict=Verdict.OVER,
    effect=Effect.TAKEN,
    reason=Reason.ADVERTISED_TWICE,
    remedy=Remedy.INVESTIGATE,
    clears_when="every GPU is advertised under one name",
)
WITH_DRA = Rule(
    id="G2",
    cause="DevicePluginAndDraBoth",
    verdict=Verdict.OVER,
    effect=Effect.TAKEN,
    reason=Reason.ADVERTISED_TWICE,
    remedy=Remedy.INVESTIGATE,
    clears_when="a GPU is in a DRA slice or advertised by the device plugin, not both",
)

TWO_FORMS = Rule(
    id="F2-both",
    cause="SharedRenameMismatch",
    verdict=Verdict.OVER,
    effect=Effect.TAKEN,
    reason=Reason.ADVERTISED_TWICE,
    remedy=Remedy.RESTART_DEVICE_PLUGIN,
    wait="shared-rename",
    clears_when="a GPU is advertised whole or as replicas, not both",
)
MPS_RACE = Rule(
    id="F3-race",
    cause="MpsDaemonNotReady",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.REPLICAS,
    remedy=Remedy.INVESTIGATE,
    clears_when="the MPS control daemon is alive and ready",
)

RULES = (TWO_NAMES, WITH_DRA, TWO_FORMS, MPS_RACE)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield every resource whose units somebody else promises too."""
    snapshot, lookup = context.snapshot, join.Units(context.snapshot.units)
    for view in snapshot.resources:
        own = {device.uuid for device in view.ids() if not device.is_lacking}
        for rule in (TWO_NAMES, WITH_DRA, TWO_FORMS):
            rivals = [other for other in snapshot.resources if other.name != view.name and _rule(view, other) is rule]
            promised = {device.uuid for other in rivals for device in other.ids()}
            held = {uuid for other in rivals for uuid in _held_uuids(other, lookup)}
            held |= _held_in_another_form(view, lookup) if rule is TWO_FORMS else frozenset()
            first = {device.uuid for other in rivals if _rank(other) < _rank(view) for device in other.ids()}
            # A name that nobody promises any more, a pod of before may still hold a GPU under.
            if twice := (promised | held) & own:
                yield _promised_twice(rule, view, twice, held & twice, first)
        if any(device.is_replica for device in view.ids()) and is_mps_missing(snapshot):
            yield Suspicion(rule=MPS_RACE, resource=view.name, detail="replicas are offered before MPS is ready")


def is_mps_missing(snapshot: Snapshot) -> bool:
    """True if the plugin shares by MPS and its control daemon is known to be away or not ready."""
    match snapshot.observation.mps:
        case Known(mps):
            no = Known(False)  # noqa: FBT003
            return _shares_by_mps(snapshot) and no in (mps.daemon_alive, mps.ready)
        case Unknown():
            return False


def _shares_by_mps(snapshot: Snapshot) -> bool:
    if any(plugin.config.get("sharing") == "mps" for plugin in snapshot.plugins):
        return True
    match snapshot.observation.node_object:
        case Known(node):
            return node.labels.get("nvidia.com/gpu.sharing-strategy") == "mps"
        case Unknown():
            return False


def _held_uuids(view: ResourceView, lookup: join.Units) -> frozenset[str]:
    """Return the units held under the name, advertised there or not."""
    return frozenset(join.join(text, lookup).uuid for text in view.holders())


def _held_in_another_form(view: ResourceView, lookup: join.Units) -> frozenset[str]:
    """Return the units held by ids that the name no longer has: a GPU is whole only if no replica of it is held (F1)."""
    own = {device.id for device in view.ids()}
    return frozenset(join.join(text, lookup).uuid for text in view.holders() if text not in own)


def _rule(view: ResourceView, other: ResourceView) -> Rule:
    """Return the rule that speaks of these two names."""
    if other.is_dra is not view.is_dra:
        return WITH_DRA
    return TWO_FORMS if shape.unshared(other.name) == shape.unshared(view.name) else TWO_NAMES


def _rank(view: ResourceView) -> tuple[bool, bool, str]:
    """Return the place of a name among those that promise the same: the kubelet's own plugins first, NVIDIA's before others'."""
    return view.is_dra, not view.name.startswith(shape.PREFIX), view.name


def _promised_twice(rule: Rule, view: ResourceView, twice: set[str], held: set[str], first: set[str]) -> Suspicion:
    own = view.holders()
    return Suspicion(
        rule=rule,
        resource=view.name,
        ids=tuple(device.id for device in view.ids() if device.uuid in held and device.id not in own),
        contested=tuple(device.id for device in view.ids() if device.uuid in first & twice),
        devices=tuple(sorted(twice)),
        units=len(twice),
        detail=f"promised twice: {named(twice)}; held by the other side: {named(held) or 'none'}",
    )
