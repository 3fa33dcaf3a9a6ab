"""Event sets: once per occurrence, only after registration, blocking like the real wait (topology.md section 1.3)."""

import pynvml
import pytest

from hack import fakenvml

XID = fakenvml.EventType.XID
TIMEOUT = pynvml.NVML_ERROR_TIMEOUT
WAIT = "d = n.nvmlEventSetWait_v2(s, 2000)"
SEEN = "[d.eventType, d.eventData, d.gpuInstanceId, d.computeInstanceId]"
WHOLE_GPU = 0xFFFFFFFF


@pytest.fixture
def state():
    return fakenvml.profile("hgx-h100")


@pytest.fixture
def child(state, path, start):
    fakenvml.write(state.with_xid(3, 31), path)
    child = start()
    child("hs = [n.nvmlDeviceGetHandleByIndex(i) for i in range(8)]")
    child("s = n.nvmlEventSetCreate()")
    child("[n.nvmlDeviceRegisterEvents(h, n.nvmlDeviceGetSupportedEventTypes(h), s) for h in hs]")
    return child


def test_what_happened_before_registration_is_lost(child):
    assert child.code("n.nvmlEventSetWait_v2(s, 0)") == TIMEOUT


def test_an_xid_arrives_once_and_wakes_the_wait(child, state, path):
    child.send("d = n.nvmlEventSetWait_v2(s, 15000)")
    assert not child.answered(0.1)
    fakenvml.write(state.with_xid(3, 31).with_xid(3, 79), path)
    child.receive()
    assert child(SEEN) == [XID, 79, WHOLE_GPU, WHOLE_GPU]
    assert child("ctypes.cast(d.device, ctypes.c_void_p).value == ctypes.cast(hs[3], ctypes.c_void_p).value")
    assert child.code("n.nvmlEventSetWait_v2(s, 50)") == TIMEOUT


def test_each_event_set_gets_each_occurrence(child, state, path):
    child("t = n.nvmlEventSetCreate()")
    child("n.nvmlDeviceRegisterEvents(hs[3], 8, t)")
    fakenvml.write(state.with_xid(3, 31).with_xid(3, 48).with_xid(3, 63), path)
    for name in ("s", "t"):
        assert [child(f"n.nvmlEventSetWait_v2({name}, 2000).eventData") for _ in range(2)] == [48, 63]


@pytest.mark.parametrize(
    "type_",
    [
        fakenvml.EventType.MIG_CONFIG_CHANGE,
        fakenvml.EventType.GPU_UNAVAILABLE,
        fakenvml.EventType.RECOVERY_ACTION,
        fakenvml.EventType.DOUBLE_BIT_ECC,
    ],
)
def test_other_kinds(child, state, path, type_):
    fakenvml.write(state.with_xid(3, 31).with_event(2, type_, 1), path)
    child(WAIT)
    assert child(SEEN)[:2] == [type_, 1]


def test_an_event_of_one_instance(child, state, path):
    fakenvml.write(state.with_xid(3, 31).with_xid(0, 94, gi=7, ci=0), path)
    child(WAIT)
    assert child(SEEN) == [XID, 94, 7, 0]


def test_one_unsupported_bit_registers_nothing(path, start):
    state = fakenvml.profile("t4")
    fakenvml.write(state, path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0); s = n.nvmlEventSetCreate()")
    assert child.code("n.nvmlDeviceRegisterEvents(h, 8 | 0x100, s)") == pynvml.NVML_ERROR_NOT_SUPPORTED
    fakenvml.write(state.with_xid(0, 79), path)
    assert child.code("n.nvmlEventSetWait_v2(s, 50)") == TIMEOUT


def test_mig_devices_take_no_registration(path, start):
    fakenvml.write(fakenvml.with_instances(fakenvml.profile("dgx-a100"), 0, [("7g.80gb", 0)]), path)
    child = start()
    child("s = n.nvmlEventSetCreate()")
    child("m = n.nvmlDeviceGetMigDeviceHandleByIndex(n.nvmlDeviceGetHandleByIndex(0), 0)")
    assert child.code("n.nvmlDeviceRegisterEvents(m, 8, s)") == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_a_lost_gpu_makes_the_wait_fail_after_its_last_event(child, state, path):
    fakenvml.write(state.with_xid(3, 31).with_gpu(3, lost=True).with_xid(3, 79), path)
    child(WAIT)
    assert child(SEEN)[1] == 79
    assert child.code(WAIT) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_a_freed_set_is_gone(child):
    child("n.nvmlEventSetFree(s)")
    assert child.code("n.nvmlEventSetWait_v2(s, 0)") == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_the_wait_itself_can_fail(child, state, path):
    fakenvml.write(state.with_xid(3, 31).with_fault("nvmlEventSetWait_v2", error="UNKNOWN"), path)
    assert child.code(WAIT) == pynvml.NVML_ERROR_UNKNOWN


def test_other_threads_go_on_while_one_waits(child):
    child("import threading; threading.Thread(target=n.nvmlEventSetWait_v2, args=(s, 60000), daemon=True).start()")
    assert child("n.nvmlDeviceGetCount()") == 8
