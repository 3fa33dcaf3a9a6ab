"""A fatal Xid stands until it is answered, whoever told it has forgotten it."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import codec, jsonform
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import WHOLE

OLD_DRIVER = Unknown("NOT_SUPPORTED")
"""Has no recovery action to ask for."""
NONE_TOLD = Known(())
FATAL = planes.Xid(code=79, at=builders.after(-50))


def node(at, *, xids=NONE_TOLD, action=OLD_DRIVER, **changes):
    observation = builders.a_node(at=at, **{name: value for name, value in changes.items() if name != "mig"})
    mig = {"mig": changes["mig"]} if "mig" in changes else {}
    if isinstance(observation.nvml, Unknown):
        return observation
    return builders.with_gpus(observation, builders.a_gpu(3, recovery_action=action, xids=xids, **mig))


def judged(*samples, policy=None):
    """Return (strict, lenient) after each sample, with the agent restarted before each, and the last history."""
    history, rows = History(), []
    for sample in samples:
        history, report = judge(history, sample, policy or Policy(), api_server=True)
        history = jsonform.from_json(History, jsonform.to_json(history))
        rows.append(builders.row_of(report.resources[WHOLE])[1:3])
    return rows, history


TOLD = Known((FATAL,))


def test_a_reader_that_starts_anew_makes_no_gpu_whole():
    """It registers for events and knows of none."""
    rows, _ = judged(node(0, xids=TOLD), *(node(at) for at in (10, 20, 3600, 86400)))
    assert rows == [(0, 7)] * 5


def test_the_log_may_have_told_it_too():
    record = planes.KernelRecord(
        at=builders.after(-50), text="NVRM: Xid (PCI:0000:13:00): 79, pid=1, GPU has fallen off"
    )
    rows, history = judged(node(0, kernel_log=Known((record,))), node(10, kernel_log=Known(())), node(20, xids=TOLD))
    assert rows == [(0, 7)] * 3
    assert len(history.xids) == 1


@pytest.mark.parametrize(
    "answer",
    [{"action": Known(planes.RecoveryAction.NONE)}, {"boot": Known(planes.Boot(id="boot-2", at=builders.after(50)))}],
    ids=["the driver's action is none", "another boot"],
)
def test_what_answers_it(answer):
    rows, history = judged(node(0, xids=TOLD), node(60, **answer), node(70, **answer), node(80))
    assert rows[-1] == (8, 8)
    assert history.xids == ()


@pytest.mark.parametrize(
    "unread",
    [{"nvml": Unknown("TIMEOUT")}, {"boot": Unknown("IO_ERROR")}, {"action": Unknown("TIMEOUT")}],
)
def test_a_failed_read_answers_nothing(unread):
    rows, _ = judged(node(0, xids=TOLD), node(60, **unread), node(70), node(80), node(90))
    assert rows[3:] == [(0, 7)] * 2


def test_a_gpu_that_is_away_for_a_while_comes_back_no_better():
    away = dataclasses.replace(builders.a_node(at=10).nvml.value, devices=builders.a_node(at=10).nvml.value.devices[:3])
    rows, _ = judged(node(0, xids=TOLD), builders.a_node(at=10, nvml=Known(away)), node(20), node(30), node(40))
    assert rows[3:] == [(0, 7)] * 2


def test_an_instance_that_is_gone_takes_its_xid_along():
    inside = Known((planes.Xid(code=95, at=builders.after(-50), gi=2),))
    kubelet = builders.a_kubelet({"nvidia.com/mig-1g.10gb": tuple(f"MIG-0-{n}" for n in range(3))})

    def sample(at, profiles, xids=NONE_TOLD):
        gpu = builders.a_mig_gpu(0, profiles, recovery_action=OLD_DRIVER, xids=xids)
        return builders.with_gpus(builders.a_node(1, at=at, kubelet=kubelet), gpu)

    whole = ["1g.10gb"] * 3
    history = judge(History(), sample(0, whole, inside), Policy(), api_server=True)[0]
    assert [item.xid.gi for item in history.xids] == [2]
    assert judge(history, sample(10, whole), Policy(), api_server=True)[0].xids == history.xids
    assert judge(history, sample(10, whole[:1]), Policy(), api_server=True)[0].xids == ()


def test_what_a_program_can_cause_is_not_remembered():
    _, history = judged(
        node(0, xids=Known(tuple(planes.Xid(code=code, at=builders.after(-9)) for code in (13, 31, 43))))
    )
    assert history.xids == ()


def test_the_operator_s_word_on_a_code_counts():
    policy = Policy(xids=codec.freeze({"79": "benign"}))
    assert judged(node(0, xids=TOLD), node(10), policy=policy)[1].xids == ()


def test_it_is_bounded():
    many = Known((*(planes.Xid(code=79, at=builders.after(-n), gi=n) for n in range(2000)), FATAL))
    rows, history = judged(node(0, xids=many, mig=Unknown("TIMEOUT")), node(10, mig=Unknown("TIMEOUT")))
    assert len(history.xids) == 256
    assert rows == [(0, 7)] * 2


@hypothesis.given(
    st.lists(
        st.tuples(
            st.sampled_from(("silent", "told", "no nvml", "no xids", "no log", "lost", "action unread")), st.booleans()
        ),
        max_size=12,
    )
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_no_restart_and_no_failed_read_raises_the_number(steps):
    kinds = {
        "silent": {},
        "told": {"xids": TOLD},
        "no nvml": {"nvml": Unknown("TIMEOUT")},
        "no xids": {"xids": Unknown("NOT_READY")},
        "no log": {"kernel_log": Unknown("IO_ERROR")},
        "action unread": {"action": Unknown("TIMEOUT")},
    }
    history, at = judge(History(), node(0, xids=TOLD), Policy(), api_server=True)[0], 0
    for kind, restart in steps:
        at += 30
        if restart:
            history = jsonform.from_json(History, jsonform.to_json(history))
        sample = builders.with_gpus(node(at), builders.a_lost_gpu(3)) if kind == "lost" else node(at, **kinds[kind])
        history, report = judge(history, sample, Policy(), api_server=True)
        strict, lenient = builders.row_of(report.resources[WHOLE])[1:3]
        assert not strict, (at, kind)
        assert (lenient or 0) <= 7, (at, kind)
    done = Known(planes.RecoveryAction.NONE)
    for later in (10, 20, 30):
        history, report = judge(history, node(at + later, action=done), Policy(), api_server=True)
    assert builders.row_of(report.resources[WHOLE])[:3] == ("OK", 8, 8)
