"""One GPU promised twice (faults.md A14, G2), and replicas, which are not that (F1).

Input: the ids of all resource names and DRA slices, joined to units. Output: units that two promises reach.

Invariant: replicas of one name share a GPU by design. Between names, a unit that somebody holds under one of them is
taken for the others.
"""

from collections.abc import Iterator

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

MPS_RACE = Rule(
    id="F3-race",
    cause="MpsDaemonNotReady",
    verdict=Verdict.BLOCKED,
    effect=Effect.BLOCK,
    reason=Reason.REPLICAS,
    remedy=Remedy.INVESTIGATE,
    clears_when="the MPS control daemon is alive and ready",
)

RULES = (TWO_NAMES, WITH_DRA, MPS_RACE)


def find(context: Context) -> Iterator[Suspicion]:
    """Yield every resource whose units somebody else promises too."""
    snapshot = context.snapshot
    claimed = _dra_claimed(snapshot)
    sliced = _dra_uuids(snapshot)
    for view in snapshot.resources:
        others = [other for other in snapshot.resources if _base(other.name) != _base(view.name)]
        twice = {device.uuid for device in view.ids() if device.unit is not None and _promises(others, device.uuid)}
        if twice:
            held = {text for other in others for text in _held_uuids(other)}
            yield _suspicion(TWO_NAMES, view, twice, held & twice)
        both = {device.uuid for device in view.ids()} & sliced
        if both:
            yield _suspicion(WITH_DRA, view, both, claimed & both)
        if any(device.is_replica for device in view.ids()) and is_mps_missing(snapshot):
            yield Suspicion(
                rule=MPS_RACE, resource=view.name, detail="replicas are offered before the MPS daemon is ready"
            )


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


def _base(name: str) -> str:
    """Return the name without the suffix under which its replicas are renamed (faults.md F1, F2)."""
    return name.removesuffix(".shared")


def _promises(views: list[ResourceView], uuid: str) -> bool:
    return any(device.uuid == uuid for view in views for device in view.ids())


def _held_uuids(view: ResourceView) -> frozenset[str]:
    holders = view.holders()
    return frozenset(device.uuid for device in view.ids() if device.id in holders)


def _suspicion(rule: Rule, view: ResourceView, twice: set[str], held: frozenset[str] | set[str]) -> Suspicion:
    own = view.holders()
    taken = tuple(device.id for device in view.ids() if device.uuid in held and device.id not in own)
    return Suspicion(
        rule=rule,
        resource=view.name,
        ids=taken,
        devices=tuple(sorted(twice)),
        units=len(twice),
        detail=f"promised twice: {named(twice)}; held by the other side: {named(held) or 'none'}",
    )


def _dra_uuids(snapshot: Snapshot) -> frozenset[str]:
    match snapshot.observation.dra:
        case Known(dra):
            return frozenset(device.uuid for item in dra.slices for device in item.devices if device.uuid)
        case Unknown():
            return frozenset()


def _dra_claimed(snapshot: Snapshot) -> frozenset[str]:
    """Return the UUIDs of devices that List shows in a claim."""
    match snapshot.observation.dra, snapshot.observation.kubelet:
        case Known(dra), Known(kubelet):
            pass
        case _:
            return frozenset()
    uuid_of = {(item.driver, device.name): device.uuid for item in dra.slices for device in item.devices}
    match kubelet.pods:
        case Known(pods):
            claims = (claim for pod in pods for container in pod.containers for claim in container.claims)
            named_devices = ((device.driver, device.device) for claim in claims for device in claim.devices)
            return frozenset(uuid_of[key] for key in named_devices if key in uuid_of)
        case Unknown():
            return frozenset()
