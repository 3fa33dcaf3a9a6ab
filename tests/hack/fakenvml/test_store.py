"""The state file on disk: sessions and resets, and what a write refuses."""

import pytest

from hack import fakenvml


@pytest.fixture
def state():
    return fakenvml.profile("hgx-h100")


def test_a_reset_is_refused_while_anybody_has_a_session(state, path, start):
    fakenvml.write(state.with_gpu(3, lost=True), path)
    one, two = start(), start()
    with pytest.raises(fakenvml.InUse) as refused:
        fakenvml.reset(path, state.gpus[3].uuid)
    assert set(refused.value.pids) == {one.process.pid, two.process.pid}
    assert str(one.process.pid) in str(refused.value)
    assert fakenvml.read(path).gpus[3].lost


def test_a_reset_after_the_last_session_clears_the_gpu(state, path, start):
    sick = state.with_gpu(3, lost=True, remap_pending=1, recovery_action=1).with_fault(gpu=3, error="TIMEOUT")
    fakenvml.write(sick.with_fault(gpu=4, error="TIMEOUT"), path)
    child = start()
    child("n.nvmlShutdown()")
    fakenvml.reset(path, state.gpus[3].uuid)
    after = fakenvml.read(path)
    assert (after.gpus[3].lost, after.gpus[3].remap_pending, after.gpus[3].recovery_action) == (False, 0, 0)
    assert [fault.gpu for fault in after.faults] == [4]
    child("n.nvmlInit()")
    assert child.code("n.nvmlDeviceGetHandleByIndex(3)") == 0


def test_a_killed_process_holds_nothing(state, path, start):
    fakenvml.write(state, path)
    child = start()
    assert fakenvml.sessions(path) == (child.process.pid,)
    child.end()
    assert fakenvml.sessions(path) == ()


def test_an_open_session_shows_among_the_processs_open_files(state, path, start):
    fakenvml.write(state, path)
    child = start()
    links = "[os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')]"
    child("import os")
    assert any("/nvidia" in link for link in child(links))
    child("n.nvmlShutdown()")
    assert not any("/nvidia" in link for link in child(links))


def test_a_gpu_that_needs_a_reboot_cannot_be_reset(state, path):
    sick = state.with_gpu(3, needs_reboot=True, recovery_action=2)
    fakenvml.write(sick, path)
    with pytest.raises(fakenvml.RebootNeeded):
        fakenvml.reset(path, state.gpus[3].uuid)
    assert fakenvml.read(path) == sick


def test_a_lost_gpu_cannot_be_written_back_by_mistake(state, path):
    fakenvml.write(state.with_gpu(3, lost=True), path)
    with pytest.raises(fakenvml.Invalid, match=r"gpus\[3\].lost"):
        fakenvml.write(state, path)
    fakenvml.write(state.with_gpu(3, lost=True).rebooted(), path)
    assert not fakenvml.read(path).gpus[3].lost


def test_a_write_names_every_error_and_leaves_the_file_alone(state, path):
    fakenvml.write(state, path)
    wrong = (
        state.with_gpu(0, busy=101, pci="1b:00.0")
        .with_gpu(1, uuid=state.gpus[2].uuid)
        .with_fault("nvmlDeviceGetNothing", error="TIMEOUT")
        .with_fault("nvmlDeviceGetUUID", gpu=9, error="BROKEN")
        .with_fault("nvmlDeviceGetUUID")
    )
    with pytest.raises(fakenvml.Invalid) as refused:
        fakenvml.write(wrong, path)
    places = (
        "gpus[0].busy",
        "gpus[0].pci",
        "given twice",
        "faults[0].fn",
        "faults[1].error",
        "faults[1].gpu",
        "faults[2]",
    )
    assert [place for place in places if place not in str(refused.value)] == []
    assert fakenvml.read(path) == state


def test_a_value_of_a_wrong_type_is_named(state, path):
    with pytest.raises(fakenvml.Invalid) as refused:
        fakenvml.write(state.with_gpu(0, mig_max=None, pci=5).with_gpu(1, numa_memory=[1], lost=2), path)
    places = ("gpus[0].mig_max", "gpus[0].pci", "gpus[1].numa_memory", "gpus[1].lost")
    assert {error.partition(":")[0] for error in refused.value.args} == set(places)
    assert not path.exists()


def test_the_environment_keeps_what_was_there(path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    folders = fakenvml.environment(path)["LD_LIBRARY_PATH"].split(":")
    assert folders == [str(fakenvml.build().parent), "/opt/lib"]
