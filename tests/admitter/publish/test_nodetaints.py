"""The taint's part of the loop over all Nodes."""

import dataclasses

from admitter.core.keepers import Daemon
from admitter.model.cluster import ANYWHERE, Constraints, Expression, KubePod, NodeTerm, Owner, Toleration
from admitter.model.nodestatus import TaintPolicy
from admitter.model.ruling import Ground, Hold, Ruling
from muster.model import kube, labels
from tests.admitter.clusters import TTL
from tests.admitter.nodeworld import LOST, WELL, Api

PLUGIN = Daemon(namespace="gpu", name="plugin", constraints=ANYWHERE, host_folders=("/var/lib/kubelet/device-plugins",))
TAINTS = TaintPolicy(enabled=True, cap_nodes=1)


async def test_a_taint_comes_after_its_spell_within_the_cap_and_goes_when_the_node_is_well():
    api = Api("a", "b", taints=TAINTS)
    api.reports = {"a": LOST, "b": LOST}
    await api.looks(60)
    assert (api.taint("a"), api.taint("b")) == ([], [])
    sent = await api.looks(5)
    assert sent == [("taint", "a", "done"), ("event", "a SetTaint Tainted", "done")]
    assert api.taint("a") == ["OVER"]
    assert api.figures.scene.withheld["cap"] == 1
    api.reports["a"] = WELL
    await api.looks(130)
    assert (api.taint("a"), api.taint("b")) == ([], ["OVER"])
    assert [(event.kind, event.detail) for event in api.told] == [
        ("tainted", "a: muster.dev/untrusted=OVER:NoSchedule: the verdict has stood for 60 s"),
        ("untainted", "a: muster.dev/untrusted is gone: the node has been well for 120 s"),
        ("tainted", "b: muster.dev/untrusted=OVER:NoSchedule: the verdict has stood for 60 s"),
    ]


async def test_a_taint_that_the_watch_does_not_show_yet_is_not_put_twice():
    api = Api("a", taints=TAINTS)
    api.reports["a"] = LOST
    await api.looks(60)
    api.lags = True
    assert [each[0] for each in await api.looks(10)] == ["taint", "event"]


async def test_switched_off_nobody_is_tainted_and_old_taints_go():
    api = Api("a", "b")
    api.reports = {"a": LOST, "b": WELL}
    api._store("b", object=dataclasses.replace(api.stored["b"].object, taints=_ours("OVER")))
    await api.looks(200)
    assert (api.taint("a"), api.taint("b")) == ([], [])
    assert api.asked_daemons == 0


def _ours(value):
    return (kube.Taint(key=labels.UNTRUSTED.full, value=value, effect="NoSchedule"),)


async def test_nobody_is_tainted_who_would_lose_the_cure():
    api = Api("a", taints=TAINTS, daemons=(PLUGIN,))
    api.reports["a"] = LOST
    await api.looks(100)
    assert api.taint("a") == []
    assert api.figures.scene.withheld == {"cure": 1, "cap": 0, "breaker": 0, "daemonsets-unread": 0}
    assert api.says("a")["GPUCapacityTruthful"] == "False GpuLost"


async def test_nobody_is_tainted_while_the_daemonsets_cannot_be_read():
    api = Api("a", taints=TAINTS, daemons=None)
    api.reports["a"] = LOST
    await api.looks(100)
    assert api.taint("a") == []
    assert api.figures.scene.withheld["daemonsets-unread"] == 1
    assert api.asked_daemons == 4, "once in 30 s"


async def test_a_cure_that_turns_up_later_lifts_the_taint():
    api = Api("a", taints=TAINTS)
    api.reports["a"] = LOST
    await api.looks(70)
    assert api.taint("a") == ["OVER"]
    api.daemons = (PLUGIN,)
    await api.looks(31)
    assert api.taint("a") == []
    assert api.told[-1].detail == (
        "a: muster.dev/untrusted is gone: it would keep out the cure: gpu/plugin does not tolerate it"
    )


async def test_a_cure_that_waits_for_the_node_lifts_the_taint_with_its_name():
    """Its DaemonSet's template tolerates the taint by now; the pod was made before."""
    tolerant = dataclasses.replace(PLUGIN, constraints=_tolerant())
    api = Api("a", taints=TAINTS, daemons=(tolerant,))
    api.reports["a"] = LOST
    await api.looks(70)
    pinned = NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=("a",)),))
    owner = Owner(kind="DaemonSet", name="plugin", uid="u", is_controller=True)
    pod = KubePod(
        uid="p",
        namespace="gpu",
        name="plugin-x",
        resource_version="1",
        phase=kube.PodPhase.PENDING,
        owners=(owner,),
        constraints=Constraints(required=(pinned,)),
    )
    api.waiting = {"p": pod}
    await api.looks(2)
    assert api.taint("a") == []
    assert api.told[-1].detail.endswith("it keeps out the cure: gpu/plugin-x is Pending because of it")
    await api.looks(100)
    assert api.taint("a") == [], "the pod still waits for somebody to bind it"
    api.waiting = {"p": dataclasses.replace(pod, node="a")}
    await api.looks(2)
    assert api.taint("a") == ["OVER"]


def _tolerant():
    return Constraints(tolerations=(Toleration(operator="Exists"),))


async def test_while_the_breaker_holds_nobody_is_tainted():
    api = Api("a", "b", taints=TAINTS)
    api.ruling = Ruling(holds=(Hold(ground=Ground.RULE, culprit="x", since=0.0, nodes=frozenset({"b"})),))
    api.reports["a"] = LOST
    await api.looks(100)
    assert api.taint("a") == []
    assert api.figures.scene.withheld["breaker"] == 1


async def test_a_silent_node_is_not_tainted_for_that():
    api = Api("a", taints=TAINTS)
    api.reports["a"] = LOST
    await api.looks(30)
    api.heard["a"] = api.now - TTL - 1
    await api.looks(300)
    assert api.taint("a") == []
