"""The fake host is what the kernel would show for the driver's state, and its edits change no more than they say."""

import datetime
import os
import stat

import pytest

from hack import fakenvml
from hack.fakenode import host, pcibus, proctable

BOOTED_AT = datetime.datetime(2026, 12, 1, 8, 0, tzinfo=datetime.UTC)
UID = "1b671a64-40d5-491e-99b0-da01ff1f3341"


@pytest.fixture
def state():
    return fakenvml.profile("dgx-a100")


@pytest.fixture
def root(tmp_path, state):
    host.make(tmp_path, state, booted_at=BOOTED_AT)
    return tmp_path


def start_time(root, pid):
    """The start time of a process as procfs tells it."""
    fields = (root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[19])  # field 22, the first after the name being field 3
    return BOOTED_AT + datetime.timedelta(seconds=ticks / os.sysconf("SC_CLK_TCK"))


def device_files(root):
    return {path.name for path in (root / "dev").glob("nvidia*") if not path.is_dir()}


def test_every_gpu_is_on_the_bus_under_the_driver(root, state):
    for gpu in state.gpus:
        folder = root / "sys/bus/pci/devices" / gpu.pci
        assert (folder / "vendor").read_text() == "0x10de\n"
        assert (folder / "class").read_text() == "0x030200\n"
        assert (folder / "numa_node").read_text() == f"{gpu.numa_node}\n"
        assert (folder / "driver").resolve() == (root / "sys/bus/pci/drivers/nvidia").resolve()
        assert (folder / "iommu_group").resolve().name.isdecimal()


def test_the_bus_has_somebody_elses_function_too(root):
    vendors = {path.read_text() for path in (root / "sys/bus/pci/devices").glob("*/vendor")}
    assert vendors == {"0x10de\n", "0x8086\n"}


def test_a_function_can_be_given_to_a_virtual_machine_and_taken_off(root, state):
    pcibus.bind(root, state.gpus[0].pci, "vfio-pci")
    pcibus.bind(root, state.gpus[1].pci, None)
    pcibus.remove(root, state.gpus[2].pci)
    devices = root / "sys/bus/pci/devices"
    assert (devices / state.gpus[0].pci / "driver").readlink().name == "vfio-pci"
    assert not (devices / state.gpus[1].pci / "driver").is_symlink()
    assert not (devices / state.gpus[2].pci).exists()
    assert len(list(devices.iterdir())) == 8


def test_device_files_are_character_devices_of_the_drivers_major(root):
    status = os.stat(root / "dev/nvidia0")
    assert stat.S_ISCHR(status.st_mode)
    assert f"{os.major(status.st_rdev):3} nvidia\n" in (root / "proc/devices").read_text()
    assert device_files(root) == {
        *(f"nvidia{minor}" for minor in range(8)),
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
    }


def test_a_lost_gpu_stays_on_the_bus_and_in_dev(root, state):
    host.apply(root, state.with_gpu(3, lost=True))
    assert (root / "sys/bus/pci/devices" / state.gpus[3].pci / "driver").is_symlink()
    assert "nvidia3" in device_files(root)


def test_a_device_file_can_be_missing(root, state):
    host.remove_device_file(root, "nvidia-uvm")
    assert "nvidia-uvm" not in device_files(root)
    host.apply(root, state)
    assert "nvidia-uvm" in device_files(root)


def test_a_gpu_that_the_driver_no_longer_has_loses_its_files(root, state):
    shorter = fakenvml.State(driver=state.driver, gpus=state.gpus[:7])
    host.apply(root, shorter)
    assert "nvidia7" not in device_files(root)
    assert len(list((root / "proc/driver/nvidia/gpus").iterdir())) == 7


def test_mig_instances_have_capabilities(root, state):
    cut = fakenvml.with_instances(state, 1, [("3g.40gb", 4), ("1g.10gb", 0)])
    host.apply(root, cut)
    files = sorted((root / "proc/driver/nvidia/capabilities/gpu1/mig").glob("**/access"))
    assert len(files) == 4, "two for each instance"
    for file in files:
        minor = file.read_text().split()[1]
        assert (root / f"dev/nvidia-caps/nvidia-cap{minor}").exists()


def test_the_module_and_the_library_can_be_of_different_versions(root, state):
    host.set_module_version(root, "535.1.1")
    assert (root / "sys/module/nvidia/version").read_text() == "535.1.1\n"
    assert "  535.1.1  " in (root / "proc/driver/nvidia/version").read_text()
    assert host.read_state(root).driver == state.driver


def test_a_driver_can_be_unloaded_and_loaded_again(root, state):
    host.unload_driver(root)
    assert not host.state_path(root).exists()
    assert not (root / "sys/module/nvidia").exists()
    assert device_files(root) == set()
    host.apply(root, state)
    assert host.read_state(root) == state
    assert len(device_files(root)) == 11


def test_the_library_can_be_missing(root):
    library = root / "driver/usr/lib64/libnvidia-ml.so.1"
    assert library.is_file()
    host.remove_library(root)
    assert not library.exists()
    host.install_library(root)
    assert library.is_file()


def test_kubelet_and_plugin_have_start_times(root):
    (kubelet,) = proctable.pids_named(root, "kubelet")
    (plugin,) = proctable.pids_named(root, "nvidia-device-plugin")
    assert start_time(root, kubelet) == BOOTED_AT + datetime.timedelta(seconds=60)
    assert start_time(root, plugin) == BOOTED_AT + datetime.timedelta(seconds=65)
    assert (root / f"proc/{plugin}/comm").read_text() == "nvidia-device-p\n", "the kernel cuts names"


def test_a_restarted_kubelet_is_another_process(root):
    (before,) = proctable.pids_named(root, "kubelet")
    host.stop_kubelet(root)
    assert proctable.pids_named(root, "kubelet") == ()
    after = host.start_kubelet(root, at=BOOTED_AT + datetime.timedelta(hours=2))
    assert after != before
    assert start_time(root, after) == BOOTED_AT + datetime.timedelta(hours=2)


def test_a_plugin_takes_its_socket_with_it(root):
    socket = root / "device-plugins" / host.PLUGIN_SOCKET
    assert socket.exists()
    host.stop_plugin(root)
    assert not socket.exists()
    assert proctable.pids_named(root, "nvidia-device-plugin") == ()
    host.start_plugin(root)
    assert socket.exists()


def test_a_gpu_process_is_in_the_process_table_and_in_the_driver(root):
    pid = host.start_gpu_process(root, 2, proctable.pod_cgroup(UID), used=5)
    assert [process.pid for process in host.read_state(root).gpus[2].processes] == [pid]
    assert UID.replace("-", "_") in (root / f"proc/{pid}/cgroup").read_text()
    host.end_process(root, pid)
    assert host.read_state(root).gpus[2].processes == ()
    assert not (root / f"proc/{pid}").exists()


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (
            {"version": 2, "driver": "systemd", "qos": "besteffort"},
            f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice/cri-containerd-c0ffee.scope",
        ),
        ({"version": 2, "driver": "cgroupfs", "qos": "guaranteed"}, f"0::/kubepods/pod{UID}/c0ffee"),
        ({"version": 1, "driver": "cgroupfs", "qos": "burstable"}, f"12:memory:/kubepods/burstable/pod{UID}/c0ffee"),
        (
            {"version": 1, "driver": "systemd", "qos": "guaranteed"},
            f"12:memory:/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-c0ffee.scope",
        ),
    ],
)
def test_cgroups_come_in_every_form(form, line):
    assert line in proctable.pod_cgroup(UID, **form).splitlines()


def test_the_kernel_log_has_rising_numbers_and_time_since_boot(root):
    host.log(root, "one", at=BOOTED_AT + datetime.timedelta(seconds=1))
    host.log(root, "two", at=BOOTED_AT + datetime.timedelta(seconds=2))
    assert (root / "kmsg").read_text() == "3,0,1000000,-;one\n3,1,2000000,-;two\n"


def test_an_xid_is_logged_as_the_driver_words_it(root, state):
    host.log_xid(root, 0, 79)
    host.log_xid(root, 0, 94, gi=7, ci=0)
    whole, instance = (root / "kmsg").read_text().splitlines()
    assert ";NVRM: Xid (PCI:0000:07:00): 79, pid=" in whole
    assert ";NVRM: Xid (PCI:0000:07:00 GPU-I:07 GPU-CI:00): 94, pid=" in instance


def test_a_reboot_leaves_no_process_and_a_new_boot_id(root, state):
    host.apply(root, state.with_gpu(3, lost=True))
    host.start_gpu_process(root, 2)
    host.log(root, "old")
    before = (root / "proc/sys/kernel/random/boot_id").read_text()
    host.reboot(root, at=BOOTED_AT + datetime.timedelta(days=1))
    assert (root / "proc/sys/kernel/random/boot_id").read_text() != before
    assert proctable.boot_time(root) == BOOTED_AT + datetime.timedelta(days=1)
    assert [path.name for path in (root / "proc").glob("[0-9]*")] == ["2"], "the kernel's own"
    assert (root / "kmsg").read_text() == ""
    after = host.read_state(root)
    assert not after.gpus[3].lost
    assert after.gpus[2].processes == ()


def test_the_readers_settings_point_into_the_host(root):
    settings = host.reader_settings(root)
    assert all(value.startswith(str(root)) for value in settings.values())
    assert host.environment(root)["MUSTER_FAKENVML_STATE"] == str(host.state_path(root))
