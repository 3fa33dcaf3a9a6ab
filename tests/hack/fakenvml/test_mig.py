"""MIG through the real binding: modes, instances, holes, reused handles."""

import pytest

from hack import fakenvml

NOT_FOUND, INVALID, NO_PERMISSION = 6, 2, 4
LAYOUT = (("3g.40gb", 4), ("1g.10gb", 0), ("1g.20gb", 2))


@pytest.fixture
def state():
    return fakenvml.with_instances(fakenvml.profile("dgx-a100"), 0, LAYOUT)


@pytest.fixture
def child(state, path, start):
    fakenvml.write(state, path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0)")
    return child


def test_mode_current_and_pending(child, state, path):
    assert child("n.nvmlDeviceGetMigMode(h)") == [1, 1]
    fakenvml.write(fakenvml.with_mode(state, 0, current=False, pending=True), path)
    assert child("n.nvmlDeviceGetMigMode(h)") == [0, 1]
    assert child("n.nvmlDeviceGetMaxMigDeviceCount(h)") == 0


def test_an_instance(child, state):
    child("m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)")
    assert child("n.nvmlDeviceGetUUID(m)") == state.gpus[0].mig[0].uuid
    assert child("n.nvmlDeviceGetName(m)") == "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    assert child("[n.nvmlDeviceGetGpuInstanceId(m), n.nvmlDeviceGetComputeInstanceId(m)]") == [2, 0]
    child("a = n.nvmlDeviceGetAttributes(m)")
    assert child("[a.gpuInstanceSliceCount, a.computeInstanceSliceCount, a.memorySizeMB]") == [3, 3, 40192]
    child("p = n.nvmlGpuInstanceGetInfo(n.nvmlDeviceGetGpuInstanceById(h, 2))")
    assert child("[p.profileId, p.placement.start, p.placement.size]") == [9, 4, 4]


def test_a_hole_is_not_found_and_the_rest_goes_on(child, state, path):
    fakenvml.write(fakenvml.without_instance(state, 0, slot=1), path)
    assert [child.code(f"n.nvmlDeviceGetMigDeviceHandleByIndex(h, {slot})") for slot in range(4)] == [0, 6, 0, 6]
    assert child.code("n.nvmlDeviceGetMigDeviceHandleByIndex(h, 7)") == INVALID


def test_a_handle_is_used_again_for_another_instance(child, state, path):
    child("m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)")
    changed = fakenvml.with_instances(state, 0, [("2g.20gb", 0)], round_=1)
    fakenvml.write(changed, path)
    assert child("n.nvmlDeviceGetUUID(m)") == changed.gpus[0].mig[0].uuid
    assert changed.gpus[0].mig[0].uuid not in {instance.uuid for instance in state.gpus[0].mig}


def test_a_handle_of_a_destroyed_instance_is_invalid(child, state, path):
    child("m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 1)")
    fakenvml.write(fakenvml.without_instance(state, 0, slot=1), path)
    assert child.code("n.nvmlDeviceGetUUID(m)") == INVALID


def test_placement_needs_permission(child, state, path):
    fakenvml.write(state.with_fault("nvmlGpuInstanceGetInfo", error="NO_PERMISSION"), path)
    child("g = n.nvmlDeviceGetGpuInstanceById(h, 2)")
    assert child.code("n.nvmlGpuInstanceGetInfo(g)") == NO_PERMISSION


def test_a_lost_parent_loses_its_instances(child, state, path):
    child("m = n.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)")
    fakenvml.write(state.with_gpu(0, lost=True), path)
    assert child.code("n.nvmlDeviceGetUUID(m)") == 15


def test_a_reset_applies_the_pending_mode_and_drops_instances(state):
    gpu = fakenvml.with_mode(state, 0, current=True, pending=False).with_reset(0).gpus[0]
    assert (gpu.mig_current, gpu.mig_pending, gpu.mig) == (0, 0, ())


@pytest.mark.parametrize(
    "layout", [[("4g.40gb", 4)], [("3g.40gb", 0), ("4g.40gb", 0)], [("1g.10gb", 7)], [("7g.80gb", 0), ("1g.10gb", 6)]]
)
def test_a_layout_that_the_board_cannot_have_is_refused(layout):
    with pytest.raises(ValueError, match="no such placement"):
        fakenvml.with_instances(fakenvml.profile("dgx-a100"), 0, layout)


def test_processes_of_an_instance(child, state, path):
    fakenvml.write(state.with_process(0, fakenvml.Process(pid=7, gi=2, ci=0)), path)
    child("ms = [n.nvmlDeviceGetMigDeviceHandleByIndex(h, slot) for slot in (0, 1)]")
    assert child("[[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(m)] for m in ms]") == [[7], []]
    assert child("[[p.pid, p.gpuInstanceId] for p in n.nvmlDeviceGetComputeRunningProcesses(h)]") == [[7, 2]]
