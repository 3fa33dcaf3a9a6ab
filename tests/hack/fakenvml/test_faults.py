"""Every fault that the fake driver can be given, as the real binding sees it."""

import dataclasses
import signal

import pynvml
import pytest

from hack import fakenvml
from hack.fakenvml import statechecks

LOST, RESET_REQUIRED, NOT_FOUND, NOT_SUPPORTED = 15, 16, 6, 3


@pytest.fixture
def state():
    return fakenvml.profile("hgx-h100")


@pytest.fixture
def child(state, path, start):
    """A child with a session, and a handle h of GPU 3."""
    fakenvml.write(state, path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(3)")
    return child


# -- the driver as a whole


def test_no_state_file_is_a_driver_that_is_not_loaded(start):
    assert start(init=False).code("n.nvmlInit()") == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_driver_that_goes_away_fails_every_call(child, path):
    path.unlink()
    assert child.code("n.nvmlDeviceGetCount()") == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert child.code("n.nvmlShutdown()") == 0, "a session can always be closed"


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "NO_PERMISSION"])
def test_init_is_refused_while_open_sessions_go_on(child, state, path, start, error):
    fakenvml.write(state.with_init_error(error), path)
    assert start(init=False).code("n.nvmlInit()") == fakenvml.NVML_CODES[error]
    assert child("n.nvmlDeviceGetCount()") == 8


def test_the_state_is_read_anew_at_every_call(child, state, path):
    assert child("n.nvmlDeviceGetPowerUsage(h)") == 70_000
    fakenvml.write(state.with_gpu(3, power_mw=650_000), path)
    assert child("n.nvmlDeviceGetPowerUsage(h)") == 650_000


# -- one device


def test_a_lost_gpu_fails_alone(child, state, path):
    fakenvml.write(state.with_gpu(3, lost=True), path)
    assert child("n.nvmlDeviceGetCount()") == 8
    assert child.code("n.nvmlDeviceGetUUID(h)") == LOST
    assert child.code("n.nvmlDeviceGetHandleByIndex(3)") == LOST
    assert [child.code(f"n.nvmlDeviceGetHandleByIndex({index})") for index in (0, 1, 2, 4, 5, 6, 7)] == [0] * 7


def test_a_lost_gpu_stays_lost_until_it_is_reset(child, state, path):
    fakenvml.write(state.with_gpu(3, lost=True), path)
    assert child.code("n.nvmlDeviceGetUUID(h)") == LOST
    path.unlink()  # so that `write` does not know either
    fakenvml.write(state, path)
    assert child.code("n.nvmlDeviceGetUUID(h)") == LOST
    fakenvml.write(state.with_reset(3), path)
    assert child.code("n.nvmlDeviceGetUUID(h)") == 0


def test_a_lost_gpu_is_back_after_a_reboot(child, state, path):
    lost = state.with_gpu(3, lost=True)
    fakenvml.write(lost, path)
    assert child.code("n.nvmlDeviceGetUUID(h)") == LOST
    fakenvml.write(lost.rebooted(), path)
    assert child.code("n.nvmlDeviceGetUUID(h)") == 0


def test_reset_required(child, state, path):
    fakenvml.write(state.with_gpu(3, reset_required=True), path)
    assert child.code("n.nvmlDeviceGetUUID(h)") == RESET_REQUIRED


@pytest.mark.parametrize("name", ["NO_PERMISSION", "TIMEOUT", "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "UNKNOWN"])
def test_one_function_of_one_device_fails(child, state, path, name):
    fakenvml.write(state.with_fault("nvmlDeviceGetPowerUsage", gpu=3, error=name), path)
    child("other = n.nvmlDeviceGetHandleByIndex(2)")
    assert child.code("n.nvmlDeviceGetPowerUsage(h)") == fakenvml.NVML_CODES[name]
    assert child.code("n.nvmlDeviceGetPowerUsage(other)") == 0
    assert child.code("n.nvmlDeviceGetUUID(h)") == 0


def test_every_function_can_fail_alone(child, state, path):
    codes = {}
    for function in sorted(statechecks.FUNCTIONS):
        fakenvml.write(state.with_fault(function, error="IN_USE"), path)
        codes[function] = child(f'n._nvmlGetFunctionPointer("{function}")(h, None, None, None, None)')
    assert codes == dict.fromkeys(codes, pynvml.NVML_ERROR_IN_USE)


def test_every_function_says_that_the_session_is_closed(child):
    child("n.nvmlShutdown()")
    others = sorted(statechecks.FUNCTIONS - {"nvmlInitWithFlags"})
    codes = [child(f'n._nvmlGetFunctionPointer("{function}")(h, None, None, None, None)') for function in others]
    assert codes == [pynvml.NVML_ERROR_UNINITIALIZED] * len(others)


def test_a_fault_can_pass_after_some_calls(child, state, path):
    fakenvml.write(state.with_fault("nvmlDeviceGetPowerUsage", error="TIMEOUT", times=2), path)
    codes = [child.code("n.nvmlDeviceGetPowerUsage(h)") for _ in range(3)]
    assert codes == [10, 10, 0]
    fakenvml.write(state.with_gpu(0, busy=5).with_fault("nvmlDeviceGetPowerUsage", error="TIMEOUT", times=2), path)
    assert child.code("n.nvmlDeviceGetPowerUsage(h)") == 0, "the count outlives an unrelated change"


def test_a_gpu_that_is_counted_but_not_there(child, state, path):
    shorter = fakenvml.State(driver=state.driver, gpus=state.gpus[:7], counted=8)
    fakenvml.write(shorter, path)
    assert child("n.nvmlDeviceGetCount()") == 8
    assert child.code("n.nvmlDeviceGetHandleByIndex(7)") == NOT_FOUND
    assert child.code("n.nvmlDeviceGetHandleByIndex(8)") == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert child.code("n.nvmlDeviceGetHandleByIndex(400)") == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_gpu_that_vanishes_between_count_and_handle(child, state, path):
    fakenvml.write(state.with_gpu(7, lost=True), path)
    assert child("n.nvmlDeviceGetCount()") == 8
    assert child.code("n.nvmlDeviceGetHandleByIndex(7)") == LOST


def test_another_gpu_at_the_same_index_keeps_the_handle(child, state, path):
    before = child("n.nvmlDeviceGetUUID(h)")
    fakenvml.write(state.with_gpu(3, uuid="GPU-99999999-0000-0000-0000-000000000000"), path)
    assert child("n.nvmlDeviceGetUUID(h)") == "GPU-99999999-0000-0000-0000-000000000000" != before


# -- time and death


def test_a_slow_call_still_answers(child, state, path):
    fakenvml.write(state.with_fault("nvmlDeviceGetUUID", gpu=3, slow_ms=300), path)
    child.send("n.nvmlDeviceGetUUID(h)")
    assert not child.answered(0.05)
    assert child.receive() == state.gpus[3].uuid


def test_a_hung_call_never_answers_and_blocks_nobody_else(child, state, path, start):
    fakenvml.write(state.with_fault(gpu=3, hang=True), path)
    child("import threading; threading.Thread(target=n.nvmlDeviceGetUUID, args=(h,), daemon=True).start()")
    other = start()
    other.hang("n.nvmlDeviceGetHandleByIndex(3)")
    assert child("n.nvmlDeviceGetCount()") == 8, "another thread goes on"
    assert child("n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(2))") == state.gpus[2].uuid
    fakenvml.write(state, path)
    assert not other.answered(0.3), "what hangs hangs, whatever is mended later"


def test_a_segfault_kills_the_caller(child, state, path):
    fakenvml.write(state.with_fault("nvmlDeviceGetUUID", gpu=3, segfault=True), path)
    child.send("n.nvmlDeviceGetUUID(h)")
    assert child.process.wait(10) == -signal.SIGSEGV


# -- health


def test_ecc_and_remap_counters(child, state, path):
    fakenvml.write(
        state.with_gpu(
            3, ecc_volatile_uncorrected=2, ecc_aggregate_corrected=9, remap_uncorrectable=1, remap_pending=1,
            sram_uncorrected=7, sram_volatile=5, sram_threshold=1,
        ),
        path,
    )  # fmt: skip
    totals = [child(f"n.nvmlDeviceGetTotalEccErrors(h, {e}, {c})") for e, c in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert totals == [0, 9, 2, 0]
    assert child("n.nvmlDeviceGetRemappedRows(h)") == [0, 1, 1, 0]
    child("s = n.c_nvmlEccSramErrorStatus_v1_t()")
    child("n.nvmlDeviceGetSramEccErrorStatus(h, ctypes.byref(s))")
    assert child("[s.aggregateUncSecDed, s.volatileUncParity, s.bThresholdExceeded]") == [7, 5, 1]


def test_page_retirement_instead_of_remapping_on_turing(path, start):
    fakenvml.write(fakenvml.profile("t4").with_gpu(0, retired_pending=1), path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0)")
    assert child("n.nvmlDeviceGetRetiredPagesPendingStatus(h)") == 1
    assert child.code("n.nvmlDeviceGetRemappedRows(h)") == NOT_SUPPORTED


@pytest.mark.parametrize("action", range(8))
def test_recovery_action_is_field_230(child, state, path, action):
    fakenvml.write(state.with_gpu(3, recovery_action=action), path)
    assert child("n.nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal") == action


def test_a_field_batch_has_mixed_codes(child, state, path):
    fakenvml.write(
        fakenvml.State(
            driver=state.driver,
            gpus=state.gpus,
            fields=(
                fakenvml.FieldValue(gpu=3, id=230, error="NO_PERMISSION"),
                fakenvml.FieldValue(gpu=3, id=170, value=5),
            ),
        ),
        path,
    )
    child("v = n.nvmlDeviceGetFieldValues(h, [230, 91, 170, 300])")
    assert child("[x.nvmlReturn for x in v]") == [4, 0, 0, 3]
    assert child("[x.value.uiVal for x in v][1:3]") == [18, 5]


def test_a_batch_without_any_value_fails(child):
    assert child.code("n.nvmlDeviceGetFieldValues(h, [300, 301])") == NOT_SUPPORTED


def test_a_licence_that_lapsed(child, state, path):
    assert child("n.nvmlDeviceGetGridLicensableFeatures_v4(h).isGridLicenseSupported") == 0
    fakenvml.write(state.with_gpu(3, licence=1, licence_expiry=1_796_083_200), path)
    child("f = n.nvmlDeviceGetGridLicensableFeatures_v4(h).gridLicensableFeatures[0]")
    assert child("[f.featureEnabled, f.licenseExpiry.year, f.licenseExpiry.month, f.licenseExpiry.day]") == [
        1,
        2026,
        12,
        1,
    ]
    fakenvml.write(state.with_gpu(3, licence=0), path)
    assert child("n.nvmlDeviceGetGridLicensableFeatures_v4(h).gridLicensableFeatures[0].featureState") == 0


def test_a_drained_gpu_is_hidden_and_still_known_by_its_address(child, state, path):
    child("p = n.nvmlDeviceGetPciInfo(n.nvmlDeviceGetHandleByIndex(7))")
    assert child("n.nvmlDeviceQueryDrainState(p)") == 0
    fakenvml.write(dataclasses.replace(state.with_gpu(7, drain=1), counted=7), path)
    assert child("n.nvmlDeviceGetCount()") == 7
    assert child.code("n.nvmlDeviceGetHandleByIndex(7)") == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert child("n.nvmlDeviceQueryDrainState(p)") == 1


# -- fabric and links


def fabric(child, version):
    child(f"i = n.c_nvmlGpuFabricInfo_v{version}_t()")
    child("n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref(i))")
    return child("[i.state, i.status, i.cliqueId, i.healthMask]")


@pytest.mark.parametrize("fabric_state", range(4))
def test_fabric_states(child, state, path, fabric_state):
    fakenvml.write(state.with_gpu(3, fabric_state=fabric_state, fabric_status=999, fabric_clique=2), path)
    assert fabric(child, 3) == [fabric_state, 999, 2, 0x1AA]


def test_fabric_health(child, state, path):
    fakenvml.write(state.with_gpu(3, fabric_mask=0x1A9, fabric_summary=2), path)
    assert fabric(child, 3)[3] == 0x1A9
    assert child("i.healthSummary") == 2


def test_an_older_driver_has_only_the_second_form(child, state, path):
    fakenvml.write(state.with_gpu(3, fabric_version=2), path)
    assert child.code("n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref(n.c_nvmlGpuFabricInfo_v3_t()))") == 25
    assert fabric(child, 2)[0] == 3


def test_a_driver_from_before_versions_has_the_first_form(child, state, path):
    fakenvml.write(state.with_gpu(3, fabric_version=1, fabric_clique=5, fabric_uuid="0f" * 16), path)
    for version in (2, 3):
        info = f"n.c_nvmlGpuFabricInfo_v{version}_t()"
        assert child.code(f"n.nvmlDeviceGetGpuFabricInfoV(h, ctypes.byref({info}))") == 25
    child("i = n.c_nvmlGpuFabricInfo_t()")
    child("n.nvmlDeviceGetGpuFabricInfo(h, ctypes.byref(i))")
    assert child("[i.state, i.cliqueId, bytes(i.clusterUuid).hex()]") == [3, 5, "0f" * 16]


def test_all_links_of_one_gpu_down(child, state, path):
    fakenvml.write(state.with_links_down(3), path)
    assert child("[n.nvmlDeviceGetNvLinkState(h, link) for link in range(18)]") == [0] * 18
    child("other = n.nvmlDeviceGetHandleByIndex(2)")
    assert child("n.nvmlDeviceGetNvLinkState(other, 0)") == 1


# -- processes


def processes(child):
    child("ps = n.nvmlDeviceGetComputeRunningProcesses(h)")
    return child("[[p.pid, p.usedGpuMemory, p.gpuInstanceId] for p in ps]")


def test_processes_and_their_memory(child, state, path):
    assert processes(child) == []
    busy = state.with_process(3, fakenvml.Process(pid=41, used=5)).with_process(3, fakenvml.Process(pid=42, used=None))
    fakenvml.write(busy, path)
    assert processes(child) == [[41, 5, 0xFFFFFFFF], [42, None, 0xFFFFFFFF]]
    fakenvml.write(busy.without_process(41), path)
    assert [pid for pid, _, _ in processes(child)] == [42]


def test_the_process_list_outgrows_the_buffer_once(child, state, path):
    racing = state.with_process(3, fakenvml.Process(pid=41)).with_fault(
        "nvmlDeviceGetComputeRunningProcesses_v3", gpu=3, grow=True, times=1
    )
    fakenvml.write(racing, path)
    assert child.code("n.nvmlDeviceGetComputeRunningProcesses(h)") == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert [pid for pid, _, _ in processes(child)] == [41]
