"""The real binding, the fake driver, a reader in a process of its own."""

import dataclasses

import pytest

from agent.model import planes
from hack import fakenvml
from hack.fakenode import host, proctable
from muster.model.reading import Known, Unknown
from tests.agent.reader import world as worlds
from tests.agent.reader.world import running

LINKS = {"hgx-h100": 18, "dgx-a100": 12, "gb200": 18, "a100-pcie": 12, "l40s": 0, "t4": 0}


@pytest.mark.parametrize("machine", sorted(fakenvml.MACHINES))
async def test_a_healthy_machine_is_read_whole(tmp_path, machine):
    """Every device is there, without an error, and its static facts are what the driver says."""
    async with running(tmp_path, machine) as world:
        nvml = await world.nvml(with_static=True, with_processes=True)
        assert tuple(gpu.uuid for gpu in nvml.devices) == world.uuids
        assert nvml.device_count == Known(len(world.uuids))
        assert nvml.driver_version == Known(world.state.driver) == nvml.kernel_module_version
        for gpu, fake in zip(nvml.devices, world.state.gpus, strict=True):
            assert gpu.error == ""
            assert (gpu.pci, gpu.product) == (Known(fake.pci), Known(fake.name))
            assert gpu.memory_bytes == Known(fake.memory)
            assert gpu.processes == Known(())
            assert gpu.numa_node == Known(min(fake.numa_memory))
            assert len(gpu.nvlinks.value) == LINKS[machine]


async def test_links_say_what_is_at_the_other_end(tmp_path):
    async with running(tmp_path, "a100-pcie") as world:
        remotes = {link.remote for link in (await world.gpu(0, with_static=True)).nvlinks.value}
        assert remotes == {Known(planes.LinkRemote.GPU)}
    root = tmp_path / "gb200"
    root.mkdir()
    async with running(root, "gb200") as world:
        gpu = await world.gpu(0, with_static=True)
        assert gpu.fabric.value.state is planes.FabricState.COMPLETED
        assert gpu.fabric.value.clique == Known(32766)
        assert gpu.fabric.value.status == Known("success")


async def test_a_lost_gpu_keeps_its_name_and_leaves_the_others_alone(tmp_path):
    async with running(tmp_path) as world:
        before = await world.nvml(with_static=True)
        world.state = world.state.with_gpu(3, lost=True)
        after = await world.nvml()
        lost = after.devices[3]
        assert (lost.uuid, lost.error, lost.pci) == (world.uuids[3], "GPU_IS_LOST", before.devices[3].pci)
        assert lost.product == before.devices[3].product
        assert isinstance(lost.utilization_percent, Unknown)
        assert [gpu.error for gpu in after.devices if gpu != lost] == [""] * 7


async def test_a_gpu_lost_before_the_reader_started_is_named_by_elimination(tmp_path):
    """NVML gives no UUID for it; one index and one GPU of the kernel module's are left over."""

    def lose(world):
        world.state = world.state.with_gpu(5, lost=True)

    async with running(tmp_path, prepare=lose) as world:
        await world.nvml()
        gpu = await worlds.until(lambda: world.gpu(5), lambda gpu: gpu if gpu.uuid == world.uuids[5] else None)
        assert gpu.error == "GPU_IS_LOST"


async def test_two_gpus_lost_before_the_start_are_not_guessed(tmp_path):
    def lose(world):
        world.state = world.state.with_gpu(5, lost=True).with_gpu(6, lost=True)

    async with running(tmp_path, prepare=lose) as world:
        await world.nvml()
        devices = (await world.nvml()).devices
        assert [gpu.uuid for gpu in devices if gpu.error] == ["unidentified-5", "unidentified-6"]


@pytest.mark.parametrize("error", ["NO_PERMISSION", "NOT_FOUND", "UNKNOWN"])
async def test_an_identifying_query_that_fails_is_the_gpus_error(tmp_path, error):
    async with running(tmp_path) as world:
        await world.nvml()
        world.state = world.state.with_fault("nvmlDeviceGetHandleByIndex_v2", gpu=2, error=error)
        devices = (await world.nvml()).devices
        assert (devices[2].uuid, devices[2].error) == (world.uuids[2], error)
        assert [gpu.error for gpu in devices].count("") == 7


async def test_reset_required(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        world.state = world.state.with_gpu(1, reset_required=True, recovery_action=1)
        gpu = await world.gpu(1)
        assert (gpu.uuid, gpu.error) == (world.uuids[1], "RESET_REQUIRED")


async def test_the_recovery_action_comes_from_a_batch_whose_fields_have_codes_of_their_own(tmp_path):
    async with running(tmp_path) as world:
        state = world.state.with_gpu(0, recovery_action=4).with_gpu(1, recovery_action=None)
        odd = fakenvml.FieldValue(gpu=2, id=230, value=77)
        refused = fakenvml.FieldValue(gpu=3, id=230, error="NO_PERMISSION")
        world.state = dataclasses.replace(state, fields=(odd, refused))
        devices = (await world.nvml()).devices
        assert devices[0].recovery_action == Known(planes.RecoveryAction.DRAIN_AND_RESET)
        assert devices[1].recovery_action == Known(planes.RecoveryAction.UNSUPPORTED)
        assert worlds.reason(devices[2].recovery_action) == "UnknownEnumValue"
        assert worlds.reason(devices[3].recovery_action) == "NO_PERMISSION"
        assert [gpu.error for gpu in devices] == [""] * 8


async def test_a_partial_failure_keeps_every_other_field(tmp_path):
    async with running(tmp_path) as world:
        before = await world.gpu(2)
        world.state = world.state.with_fault("nvmlDeviceGetUtilizationRates", gpu=2, error="UNKNOWN")
        after = await world.gpu(2)
        assert worlds.reason(after.utilization_percent) == "UNKNOWN"
        assert dataclasses.replace(after, utilization_percent=before.utilization_percent) == before


async def test_a_device_that_hangs_is_marked_and_the_others_go_on(tmp_path):
    async with running(tmp_path) as world:
        before = await world.nvml(with_static=True)
        world.state = world.state.with_fault("nvmlDeviceGetUUID", gpu=3, hang=True)
        for _ in range(3):  # The first read waits for the deadline, later ones find the mark.
            after = await world.nvml()
            assert (after.devices[3].uuid, after.devices[3].error) == (world.uuids[3], "TIMEOUT")
            assert after.devices[3].product == before.devices[3].product
            assert [gpu.error for gpu in after.devices if gpu.uuid != world.uuids[3]] == [""] * 7
        assert world.client.counters.timeouts >= 3
        assert world.process.starts == 1


async def test_the_late_return_of_a_slow_call_clears_the_mark(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml()
        world.state = world.state.with_fault("nvmlDeviceGetUUID", gpu=4, slow_ms=2500, times=1)
        assert (await world.gpu(4)).error == "TIMEOUT"
        recovered = await worlds.until(lambda: world.gpu(4), lambda gpu: gpu if not gpu.error else None)
        assert recovered.uuid == world.uuids[4]


async def test_a_uuid_swapped_at_the_same_index_is_never_the_old_one(tmp_path):
    async with running(tmp_path) as world:
        before = await world.gpu(2, with_static=True)
        world.state = world.state.with_gpu(2, uuid="GPU-11111111-2222-3333-4444-555555555555", name="Another board")
        after = await world.gpu(2)
        assert after.uuid == "GPU-11111111-2222-3333-4444-555555555555"
        assert after.product == Known("Another board")
        world.state = world.state.with_gpu(2, lost=True)
        assert (await world.gpu(2)).uuid == after.uuid != before.uuid


async def test_a_driver_that_counts_more_than_can_be_had(tmp_path):
    """The set changes while it is enumerated: the rest is read, the missing one is an error without a name."""
    async with running(tmp_path) as world:
        await world.nvml()
        world.state = dataclasses.replace(world.state, counted=9)
        nvml = await world.nvml()
        assert nvml.device_count == Known(9)
        assert tuple(gpu.uuid for gpu in nvml.devices[:8]) == world.uuids
        assert nvml.devices[8].uuid == "unidentified-8"
        assert nvml.devices[8].error != ""


@pytest.mark.parametrize("version", [2, 1])
async def test_an_older_drivers_fabric_call(tmp_path, version):
    """The binding is newer than the driver: version 3 is refused, the older form answers."""

    def age(world):
        world.state = world.state.with_every_gpu(fabric_version=version)

    async with running(tmp_path, prepare=age) as world:
        fabric = (await world.gpu(0)).fabric.value
        assert fabric.state is planes.FabricState.COMPLETED
        assert worlds.reason(fabric.summary) == "NotCollected"  # Their structures end before it.
        assert bool(fabric.health) is (version == 2)


async def test_a_driver_without_any_fabric_call(tmp_path):
    """Not knowing is not the same as having no fabric."""

    def age(world):
        state = world.state.with_fault("nvmlDeviceGetGpuFabricInfoV", error="FUNCTION_NOT_FOUND")
        world.state = state.with_fault("nvmlDeviceGetGpuFabricInfo", error="FUNCTION_NOT_FOUND")

    async with running(tmp_path, prepare=age) as world:
        assert worlds.reason((await world.gpu(0)).fabric) == "FUNCTION_NOT_FOUND"


async def test_fabric_health_is_not_tested_for_truth(tmp_path):
    async with running(tmp_path) as world:
        world.state = world.state.with_gpu(0, fabric_mask=0x1, fabric_summary=2).with_gpu(1, fabric_state=2)
        devices = (await world.nvml()).devices
        assert devices[0].fabric.value.health["degraded_bandwidth"] == "true"
        assert devices[0].fabric.value.health["route_unhealthy"] == "not_supported"
        assert devices[0].fabric.value.summary == Known(planes.FabricSummary.UNHEALTHY)
        assert devices[1].fabric == Known(planes.Fabric(state=planes.FabricState.IN_PROGRESS))


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", "memory_bytes"),
        ("nvmlDeviceGetTemperatureV", "temperature_c"),
    ],
)
async def test_a_call_that_an_older_driver_lacks_has_an_older_form(tmp_path, function, field):
    async with running(tmp_path) as world:
        before = getattr(await world.gpu(0, with_static=True), field)
        world.state = world.state.with_fault(function, error="FUNCTION_NOT_FOUND")
        assert getattr(await world.gpu(0, with_static=True), field) == before


async def test_mig_instances_are_found_past_holes(tmp_path):
    async with running(tmp_path, "dgx-a100") as world:
        layout = (("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4))
        state = fakenvml.with_instances(world.state, 0, layout)
        world.state = fakenvml.without_instance(state, 0, 1)
        mig = (await world.gpu(0)).mig.value
        assert (mig.current, mig.pending) == (True, True)
        assert [(one.profile, one.start, one.size) for one in mig.instances] == [
            ("1g.10gb", Known(0), Known(1)),
            ("3g.40gb", Known(4), Known(4)),
        ]
        assert [one.uuid for one in mig.instances] == [one.uuid for one in world.state.gpus[0].mig]
        assert mig.instances[1].gpu_slices == Known(3)
        assert mig.instances[1].memory_bytes == Known(40192 << 20)


async def test_mig_handles_are_resolved_anew_each_time(tmp_path):
    """After a reconfiguration the driver reuses handles: the new UUIDs are read, none of the old."""
    async with running(tmp_path, "dgx-a100") as world:
        layout = (("1g.10gb", 0), ("1g.10gb", 1))
        world.state = fakenvml.with_instances(world.state, 0, layout)
        old = {one.uuid for one in (await world.gpu(0)).mig.value.instances}
        world.state = fakenvml.with_instances(world.state, 0, layout, round_=1)
        new = {one.uuid for one in (await world.gpu(0)).mig.value.instances}
        assert len(new) == 2
        assert not old & new


async def test_mig_without_permission_is_unknown_and_never_an_empty_list(tmp_path):
    async with running(tmp_path, "dgx-a100") as world:
        state = fakenvml.with_instances(world.state, 0, (("1g.10gb", 0),))
        world.state = state.with_fault("nvmlDeviceGetMigDeviceHandleByIndex", gpu=0, error="NO_PERMISSION")
        devices = (await world.nvml()).devices
        assert worlds.reason(devices[0].mig) == "NO_PERMISSION"
        assert devices[0].error == ""
        assert devices[1].mig == Known(planes.Mig(current=False, pending=False, instances=()))
        # A placement needs privilege too; without it the instance is still listed.
        world.state = state.with_fault("nvmlDeviceGetGpuInstanceById", gpu=0, error="NO_PERMISSION")
        (instance,) = (await world.gpu(0)).mig.value.instances
        assert worlds.reason(instance.start) == "NO_PERMISSION"


async def test_processes_are_joined_with_their_cgroup(tmp_path):
    async with running(tmp_path) as world:
        pid = host.start_gpu_process(world.root, 1, proctable.pod_cgroup("11112222-3333"), used=5 << 30)
        foreign = host.start_gpu_process(world.root, 2, used=None)
        devices = (await world.nvml(with_processes=True)).devices
        (process,) = devices[1].processes.value
        assert (process.pid, process.name, process.used_bytes) == (pid, "python3", Known(5 << 30))
        assert "pod11112222_3333" in process.cgroup.value
        assert (process.gi, process.ci) == (None, None)
        assert devices[2].processes.value[0].pid == foreign
        assert devices[2].processes.value[0].used_bytes == Unknown("NotReported")
        # In between two process reads the last list stands.
        assert (await world.gpu(1)).processes == devices[1].processes


async def test_a_process_list_that_grows_between_two_calls_is_asked_for_again(tmp_path):
    async with running(tmp_path) as world:
        pid = host.start_gpu_process(world.root, 1)
        world.state = world.state.with_fault("nvmlDeviceGetComputeRunningProcesses_v3", gpu=1, grow=True, times=1)
        assert [process.pid for process in (await world.gpu(1, with_processes=True)).processes.value] == [pid]


async def test_ecc_and_remap_counters(tmp_path):
    async with running(tmp_path) as world:
        world.state = world.state.with_gpu(
            0,
            ecc_aggregate_uncorrected=7,
            ecc_volatile_corrected=3,
            sram_uncorrected=9,
            sram_volatile=2,
            sram_threshold=1,
            remap_pending=1,
        ).with_gpu(1, ecc_volatile_uncorrected=None)
        devices = (await world.nvml()).devices
        ecc, remap = devices[0].ecc.value, devices[0].remap.value
        assert (ecc.aggregate_uncorrected, ecc.volatile_corrected, ecc.volatile_uncorrected) == (
            Known(7),
            Known(3),
            Known(0),
        )
        assert (ecc.sram_uncorrected, ecc.sram_threshold_exceeded) == (Known(2), Known(True))
        assert (remap.pending, remap.failed) == (Known(True), Known(False))
        assert worlds.reason(devices[1].ecc) == "NOT_SUPPORTED"


async def test_sram_errors_of_years_ago_end_with_the_reset_and_what_is_not_counted_is_not_0(tmp_path):
    """The board's own count goes on for its life; no reset would ever clear what is made of it."""
    async with running(tmp_path) as world:
        world.state = world.state.with_gpu(0, sram_uncorrected=1, sram_volatile=1).with_gpu(1, sram_volatile=None)
        devices = (await world.nvml()).devices
        assert devices[0].ecc.value.sram_uncorrected == Known(1)
        assert worlds.reason(devices[1].ecc.value.sram_uncorrected) == "NOT_SUPPORTED"
        world.state = world.state.with_gpu(0, sram_volatile=world.state.gpus[0].after_reset().sram_volatile)
        assert world.state.gpus[0].sram_uncorrected == 1
        assert (await world.gpu(0)).ecc.value.sram_uncorrected == Known(0)


async def test_a_gpu_that_nvml_does_not_list_has_its_drain_state_by_address(tmp_path):
    async with running(tmp_path) as world:
        world.state = dataclasses.replace(world.state.with_gpu(7, drain=1), counted=7)
        assert len((await world.nvml()).devices) == 7
        functions = {function.address: function for function in (await world.client.read_pci()).value}
        assert functions[world.state.gpus[7].pci].drain == Known(True)
        assert worlds.reason(functions[world.state.gpus[0].pci].drain) == "NotCollected"


async def test_a_link_that_went_down_is_seen_when_static_facts_are_read_again(tmp_path):
    async with running(tmp_path) as world:
        await world.nvml(with_static=True)
        world.state = world.state.with_links_down(2)
        gpu = await world.gpu(2, with_static=True)
        assert {link.state for link in gpu.nvlinks.value} == {planes.LinkState.INACTIVE}


async def test_a_licence_is_what_the_feature_has_and_not_that_it_is_enabled(tmp_path):
    """nvml.h: featureState is non-zero if the feature is licensed, featureEnabled if it is enabled."""
    async with running(tmp_path) as world:
        world.state = world.state.with_gpu(0, licence=0).with_gpu(1, licence=1, licence_expiry=1_796_083_200)
        devices = (await world.nvml(with_static=True)).devices
        assert devices[0].licence == Known(planes.Licence(licensed=False, expiry=None))
        assert devices[1].licence.value.licensed
        assert devices[1].licence.value.expiry.year == 2026
        assert worlds.reason(devices[2].licence) == "NOT_SUPPORTED"
