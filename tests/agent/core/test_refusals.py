"""What blocks a node ends with what answers it: not by the clock, not with another admitter, not with a restart of the agent."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Mode, Policy
from muster.model import codec, jsonform, kube
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import WHOLE

UUIDS = tuple(f"GPU-{number}" for number in range(8))
PREFERRED = "Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: init: Unknown Error"
PLUGIN_POD = "gpu-operator/plugin"


def refused(message, *seconds):
    return tuple(
        kube.Rejection(at=builders.after(at), pod=f"ml/r{at}", uid=f"u{at}", reason="UnexpectedAdmissionError", message=message)
        for at in seconds
    )  # fmt: skip


def leak(left):
    return (
        f"Allocate failed due to requested number of devices unavailable for {WHOLE}. Requested: 8, Available: {left}"
    )


def node(at, rejections=(), *, held=(), made=-9000, plugin=-86400, restart=-86400, list_=None, **changes):
    """Return a node of 8 GPUs; `held` are those that one pod, made at `made`, holds; the kubelet started at `restart`."""
    listed = (builders.a_listed_pod("a", *(f"GPU-{number}" for number in held)),) if held else ()
    pods = (builders.a_pod("a", units=len(held), created_at=builders.after(made)),) if held else ()
    started = Known(builders.after(plugin)) if plugin is not None else Unknown("NotFound")
    up = {"started_at": Known(builders.after(restart)), **({"pods": list_} if list_ is not None else {})}
    facts = {
        "kubelet": Known(dataclasses.replace(builders.a_kubelet({WHOLE: UUIDS}, listed).value, **up)),
        "pods": Known(pods),
        "plugins": Known((builders.a_plugin(pod=PLUGIN_POD, started_at=started),)),
        "rejections": rejections,
    }
    return builders.a_node(at=at, **{**facts, **changes})


def numbers(*samples, policy=None):
    """Return (verdict, strict, lenient) after each sample, with the agent restarted before each."""
    history, result = History(), []
    for sample in samples:
        history, report = judge(history, sample, policy or Policy(), api_server=True)
        history = jsonform.from_json(History, jsonform.to_json(history))
        result.append(builders.row_of(report.resources[WHOLE])[:3])
    return result


BURST = refused(PREFERRED, -100, -60, -20)
LEAKS = refused(leak(2), -50, -10)
BLOCKED = ("BLOCKED", 0, 0)
FREE = ("OK", 8, 8)


@pytest.mark.parametrize(("proof", "block"), [(BURST, BLOCKED), (LEAKS, ("BLOCKED", 2, 2))], ids=["B4", "E3"])
def test_neither_hours_nor_another_admitter_end_it(proof, block):
    """Another leader knows nothing of pods that are gone; the block stands on what the agent remembers."""
    later = [node(at) for at in (10, 290, 310, 900, 5 * 3600)]
    assert numbers(node(0, proof), *later) == [block] * 6


@pytest.mark.parametrize(
    "answer",
    [
        {"plugin": 400},
        {"held": (0,), "made": 400},
        {
            "plugin": None,
            "pods": Known(
                (
                    builders.a_pod(
                        "plugin",
                        namespace="gpu-operator",
                        units=0,
                        containers=(
                            kube.Container(name="p", state=kube.ContainerState.RUNNING, since=builders.after(400)),
                        ),
                    ),
                )
            ),
        },
        {"boot": Known(planes.Boot(id="boot-2", at=builders.after(400)))},
    ],
    ids=["the plugin's process", "a pod got a device", "the plugin's container, by the API", "another boot"],
)
def test_what_answers_a_plugin_that_cannot_choose(answer):
    rows = numbers(node(0, BURST), node(350), node(410, **answer), node(420, **answer), node(430, **answer))
    free = 8 - len(answer.get("held", ()))
    assert rows == [BLOCKED, BLOCKED, ("TRANSIENT", 0, 0), ("OK", free, free), ("OK", free, free)] or rows[3:] == [
        ("TRANSIENT", free, free),
        ("TRANSIENT", free, free),
    ]


def test_what_has_answered_stays_answered_when_the_pod_that_got_a_device_ends():
    samples = (node(0, BURST), node(100, BURST, held=(0,), made=50), node(110, BURST), node(120, BURST), node(400))
    assert numbers(*samples)[-1] == FREE


@pytest.mark.parametrize("unread", [{"plugins": Unknown("IO_ERROR")}, {"plugin": None}])
def test_a_start_that_cannot_be_read_answers_nothing(unread):
    rows = numbers(node(0, BURST), *(node(at, **unread) for at in (600, 1700, 1900, 9000)), node(9010))
    assert [row[1:] for row in rows] == [(0, 0)] * 6


def test_a_start_that_nobody_could_ever_read_holds_no_node_for_ever():
    rows = numbers(node(0, BURST, plugin=None), *(node(at, plugin=None) for at in (600, 1700, 1900, 1910)))
    assert [row[1:] for row in rows] == [(0, 0), (0, 0), (0, 0), (0, 0), (8, 8)]


def test_what_is_no_proof_fades():
    """Two are no burst: a third, an hour later, makes none."""
    two = refused(PREFERRED, -60, -20)
    assert numbers(node(0, two), node(400), node(3600, refused(PREFERRED, 3590)))[-1][1:] == (8, 8)


def test_a_rule_that_is_off_remembers_nothing():
    policy = Policy(modes=codec.freeze({"B4": Mode.OFF}))
    assert numbers(node(0, BURST), node(400), policy=policy)[-1] == FREE


def test_a_lost_gpu_has_poisoned_the_node_until_the_plugin_restarts():
    """Also once the plugin, or the driver, no longer shows the GPU: admit 0, not 7, until fixed."""
    lost = {"nvml": builders.with_gpus(node(0), builders.a_lost_gpu(3)).nvml}
    gone = {
        "kubelet": builders.a_kubelet({WHOLE: UUIDS[:3] + UUIDS[4:]}),
        "node_object": builders.a_node_object({WHOLE: (8, 7)}),
    }
    once = refused(PREFERRED, -5)
    poisoned = [node(at, once, **lost) for at in (0, 20, 40)]
    rows = numbers(*poisoned, node(60, **lost, **gone), node(900, **lost, **gone), node(1000))
    assert rows == [("TRANSIENT", 0, 0), ("TRANSIENT", 0, 0), BLOCKED, BLOCKED, BLOCKED, BLOCKED]


def test_a_gpu_that_is_lost_for_one_sample_poisons_nothing_for_good():
    lost = {"nvml": builders.with_gpus(node(0), builders.a_lost_gpu(3)).nvml}
    once = refused(PREFERRED, -5)
    assert numbers(node(0, once, **lost), node(10, once), node(20, once), node(400))[-1] == FREE


# -- the kubelet's ledger


def test_a_full_node_that_was_emptied_since_does_not_leak():
    """Two pods were refused because all was held, which was the truth; the holders ended before anybody looked again."""
    truth = refused(leak(0), 5, 8)
    rows = numbers(node(0, held=range(8)), node(10, truth), node(20, truth), node(200, truth))
    assert [row[1:] for row in rows] == [(0, 0), (0, 0), (8, 8), (8, 8)]


def test_later_samples_do_not_turn_a_true_refusal_into_a_leak():
    truth = refused(leak(0), 5, 8)
    rows = numbers(node(0, held=range(8)), node(10, truth, held=range(8)), *(node(at, truth) for at in (20, 30, 40)))
    assert rows[-1][1:] == (8, 8)


def test_what_is_available_falls_with_what_is_given_out_and_rises_with_what_comes_back():
    rows = numbers(
        node(0, LEAKS), *(node(at, held=(0,), made=5) for at in (400, 410)), *(node(at) for at in (500, 510))
    )
    assert rows == [("BLOCKED", 2, 2), ("BLOCKED", 1, 1), ("BLOCKED", 1, 1), ("BLOCKED", 1, 1), ("BLOCKED", 2, 2)]


@pytest.mark.parametrize(
    "answer", [{"restart": 400}, {"held": (0, 1, 2), "made": 5}], ids=["restart", "three are held"]
)
def test_what_answers_a_ledger_that_leaks(answer):
    free = 8 - len(answer.get("held", ()))
    rows = numbers(node(0, LEAKS), node(390), node(500, **answer), node(510, **answer), node(800, **answer))
    assert rows[1] == ("BLOCKED", 2, 2)
    assert rows[-1] == ("OK", free, free)


def test_a_plugin_that_goes_and_comes_does_not_answer_for_the_kubelet():
    away = {"kubelet": builders.a_kubelet({}), "node_object": builders.a_node_object({WHOLE: (8, 0)})}
    rows = numbers(node(0, LEAKS), node(400, **away), *(node(at, plugin=405) for at in (420, 430, 440)))
    assert [row[1:] for row in rows[2:]] == [(2, 2)] * 3 or rows[-1][1:] == (2, 2)


def test_a_clock_that_jumps_back_leaves_nothing_that_no_start_can_answer():
    rows = numbers(
        node(0, BURST), node(-7200), node(-7100, plugin=-7150), node(-7090, plugin=-7150), node(-7000, plugin=-7150)
    )
    assert rows[1] == BLOCKED
    assert rows[-1] == FREE


def test_a_flood_pushes_no_proof_out():
    flood = refused(leak(8), *range(-290, 0))
    rows = numbers(node(0, BURST), node(10, flood), node(20, flood), node(900))
    assert rows[-1] == BLOCKED


# -- in general

STEPS = st.lists(
    st.tuples(
        st.sampled_from((10, 40, 200, 400, 2000)),
        st.sampled_from(("quiet", "burst", "leak", "no list", "no nvml", "no pods", "no plugins", "no host", "held")),
        st.booleans(),
    ),
    min_size=2,
    max_size=14,
)


def sample_of(kind, at):
    match kind:
        case "burst":
            return node(at, refused(PREFERRED, at - 9, at - 6, at - 3))
        case "leak":
            return node(at, refused(leak(1), at - 9, at - 6))
        case "no list":
            return node(at, list_=Unknown("Unavailable"))
        case "no nvml":
            return node(at, nvml=Unknown("TIMEOUT"))
        case "no pods":
            return node(at, pods=Unknown("SliceTooOld"))
        case "no plugins":
            return node(at, plugins=Unknown("IO_ERROR"))
        case "no host":
            return node(at, plugin=None)
        case "held":
            return node(at, held=(0,))
        case _:
            return node(at)


def lenient_of(history, sample):
    history, report = judge(history, sample, Policy(), api_server=True)
    reading = report.resources[WHOLE].admit_lenient
    return history, reading.value if isinstance(reading, Known) else 0


@hypothesis.given(STEPS)
@hypothesis.settings(max_examples=60, deadline=None)
def test_whatever_comes_a_block_stands_until_it_is_answered_and_then_ends(steps):
    """Nothing latches, nothing flaps, and neither a restart of anybody nor a failed read raises the number."""
    history, at, blocked = History(), 0, None
    for seconds, kind, restart in steps:
        at += seconds
        if restart:
            history = jsonform.from_json(History, jsonform.to_json(history))
        history, lenient = lenient_of(history, sample_of(kind, at))
        if kind in ("burst", "leak"):
            blocked = 0 if kind == "burst" or blocked == 0 else 1
        if blocked is not None:
            assert lenient <= blocked, (at, kind)
    for _ in range(3):
        at += 10
        history, lenient = lenient_of(history, node(at, plugin=at - 15 if _ else at, restart=at - 15 if _ else at))
    assert lenient == 8
