"""Planes that are files: the bus, device files, the process table, CDI and MPS, on a fake host's tree."""

import datetime
import doctest
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import nvml_codes
from agent.model import planes
from agent.reader import cdi, device_nodes, fabric, gpu, kernel_log, library, mig, mps, pci, processes
from hack import fakenvml
from hack.fakenode import host, pcibus, proctable
from muster.model.reading import Known, Unknown
from tests.agent.reader.world import reason


@pytest.fixture
def root(tmp_path):
    host.make(tmp_path, fakenvml.profile("hgx-h100", node="n1"))
    return tmp_path


@pytest.mark.parametrize("module", [cdi, device_nodes, fabric, kernel_log, mig, nvml_codes])
def test_examples(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_bus_lists_functions_of_the_vendor_only(root):
    pcibus.add(root, "0000:e1:00.0", device=0x22A3, class_=0x068000, driver=None)
    functions = {function.address: function for function in pci.read(root / "sys").value}
    assert len(functions) == 9
    assert functions["0000:1b:00.0"].driver == "nvidia"
    assert functions["0000:1b:00.0"].class_ == Known(planes.PciClass.THREE_D)
    assert functions["0000:1b:00.0"].numa_node == Known(0)
    assert isinstance(functions["0000:1b:00.0"].iommu_group, Known)
    assert functions["0000:e1:00.0"].driver is None
    assert functions["0000:e1:00.0"].class_ == Known(planes.PciClass.OTHER)


def test_a_bus_that_cannot_be_read_is_not_an_empty_one(tmp_path):
    assert reason(pci.read(tmp_path)) == "Unreadable"


def test_a_function_is_listed_even_if_nothing_else_is_known(tmp_path):
    folder = tmp_path / "bus/pci/devices/0000:1b:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (function,) = pci.read(tmp_path).value
    assert (function.address, function.driver) == ("0000:1b:00.0", None)
    assert isinstance(function.class_, Unknown)


def nodes(root):
    return {node.path: node for node in device_nodes.read(root / "dev", root / "proc").value}


def test_device_files(root):
    found = nodes(root)
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia7"} <= set(found)
    assert all(node.present for node in found.values())
    host.remove_device_file(root, "nvidia-uvm")
    host.remove_device_file(root, "nvidia3")
    (root / "dev/nvidia3").write_text("")
    found = nodes(root)
    assert found["/dev/nvidia-uvm"] == planes.DeviceNode(path="/dev/nvidia-uvm", present=False)
    assert found["/dev/nvidia3"].detail == "not a character device"


def test_a_device_file_of_an_earlier_driver_is_not_present(root):
    (root / "proc/devices").write_text("Character devices:\n195 nvidia-frontend\n508 nvidia-uvm\n")
    found = nodes(root)
    assert not found["/dev/nvidia0"].present
    assert "the driver's is 195" in found["/dev/nvidia0"].detail
    (root / "proc/devices").write_text("Character devices:\n  1 mem\n")
    assert nodes(root)["/dev/nvidia0"].detail == "the driver has no major number"


def test_device_files_of_mig_instances(tmp_path):
    state = fakenvml.with_instances(fakenvml.profile("dgx-a100", node="n1"), 0, (("1g.10gb", 0),))
    host.make(tmp_path, state)
    assert sum(path.startswith("/dev/nvidia-caps/nvidia-cap") for path in nodes(tmp_path)) == 2


def vanishing(monkeypatch, folder):
    """Have a folder go in the moment in which somebody looks into it."""
    look = os.scandir

    def vanish(path="."):
        if str(path) == str(folder) and folder.exists():
            folder.rename(folder.parent.parent / f"{folder.name}-gone")
        return look(path)

    monkeypatch.setattr(os, "scandir", vanish)


def test_mig_files_that_go_while_they_are_read_make_the_plane_unknown(tmp_path, monkeypatch):
    """Somebody cuts the GPU anew; the next cycle reads what is there then."""
    instance = tmp_path / "proc/driver/nvidia/capabilities/gpu2/mig/gi7"
    (instance / "ci0").mkdir(parents=True)
    (tmp_path / "proc/devices").write_text("Character devices:\n195 nvidia\n")
    (tmp_path / "dev").mkdir()
    vanishing(monkeypatch, instance)
    assert isinstance(device_nodes.read(tmp_path / "dev", tmp_path / "proc"), Known | Unknown)
    assert not instance.exists()


def test_a_driver_that_goes_while_its_gpus_are_listed_names_none(tmp_path, monkeypatch):
    gpus = tmp_path / "driver/nvidia/gpus"
    gpus.mkdir(parents=True)
    vanishing(monkeypatch, gpus)
    assert library.read_uuids(tmp_path) == {}
    assert not gpus.exists()


def test_the_kubelet_and_the_plugin(root):
    at = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
    names = ("kubelet", "nvidia-device-plugin")
    found = processes.list_named(root / "proc", names)
    assert {process.executable for process in found.value} == set(names)
    host.start_kubelet(root, at=max(process.started_at for process in found.value) + datetime.timedelta(seconds=90))
    again = processes.list_named(root / "proc", names)
    newest = processes.kubelet_started_at(again, ("kubelet",)).value
    assert newest > processes.kubelet_started_at(found, ("kubelet",)).value > at


def test_a_pods_process_of_that_name_is_neither_a_new_kubelet_nor_a_restarted_plugin(root):
    """Either would answer a kubelet's refusals, and let the node's capacity rise (faults.md B3, E3)."""
    names = ("kubelet", "nvidia-device-plugin")

    def seen():
        found = processes.list_named(root / "proc", names)
        facts = processes.SocketFacts(present=Known(True))
        (plugin,) = processes.plugins(found, names[1:], facts).value
        kubelets = processes.kubelet_pids(found, names[:1])
        return processes.kubelet_started_at(found, names[:1]), kubelets, plugin.started_at

    before = seen()
    for name in names:
        host.start_process(root, (name,), proctable.pod_cgroup("1111-2222"))
    assert seen() == before


def test_a_node_that_is_itself_a_pod_has_its_kubelet_in_one(root):
    host.stop_kubelet(root)
    pid = host.start_process(root, ("kubelet",), proctable.pod_cgroup("1111-2222"))
    found = processes.list_named(root / "proc", ("kubelet",))
    assert processes.kubelet_pids(found, ("kubelet",)) == (pid,)


def test_without_the_hosts_process_view_nothing_is_joined(root, monkeypatch):
    """In the container's own /proc, process 2 is not the kernel's: the same pid would be somebody else."""
    monkeypatch.setattr(processes, "_OWN", root / "proc")
    pid = host.start_process(root, ("python3",), proctable.pod_cgroup("1111-2222"))
    assert processes.has_host_view(root / "proc")
    assert isinstance(processes.read_cgroup(root / "proc", pid), Known)
    proctable.remove(root, 2)
    assert reason(processes.read_cgroup(root / "proc", pid)) == "NoHostPidView"
    assert reason(processes.list_named(root / "proc", ("kubelet",))) == "NoHostPidView"
    assert processes.read_name(root / "proc", pid) == ""
    # The driver names no process of another namespace: what it lists then is not who is on the GPU.
    assert reason(gpu.processes_of(None, root / "proc")) == "NoHostPidView"


def test_a_folder_of_cdi_specs_that_nobody_mounted_is_not_an_empty_one(tmp_path):
    assert reason(cdi.read((tmp_path / "host/etc/cdi", tmp_path / "host/run/cdi"))) == "DirectoryMissing"
    (tmp_path / "host/etc").mkdir(parents=True)
    assert cdi.read((tmp_path / "host/etc/cdi", tmp_path / "host/run/cdi")) == Known(())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_cgroups_of_every_form(root, version, driver):
    pid = host.start_process(root, ("python3",), proctable.pod_cgroup("1111-2222", version=version, driver=driver))
    path = processes.read_cgroup(root / "proc", pid).value
    assert path.startswith("/kubepods")
    assert "1111_2222" in path or "1111-2222" in path
    assert reason(processes.read_cgroup(root / "proc", 999_999)) == "ProcessGone"


def test_a_process_that_overwrites_its_arguments_is_named_by_the_kernel(root):
    pid = host.start_process(root, ("python3",))
    (root / "proc" / str(pid) / "cmdline").write_bytes(b"kubelet\0")
    assert processes.read_name(root / "proc", pid) == "python3"


def test_the_boot(root):
    assert processes.read_boot(root / "proc").value.at == proctable.boot_time(root)
    (root / "proc/stat").write_text("cpu 1\n")
    assert reason(processes.read_boot(root / "proc")) == "Unreadable"


def test_mps(root):
    off = mps.read(root / "proc", root / "mps").value
    assert (off.daemon_alive, off.ready) == (Known(False), Known(False))
    host.start_process(root, ("/usr/bin/nvidia-cuda-mps-control", "-d"))
    (root / "mps/.ready").touch()
    on = mps.read(root / "proc", root / "mps").value
    assert (on.daemon_alive, on.ready) == (Known(True), Known(True))
    assert isinstance(on.started_at, Known)


def test_a_jobs_own_mps_is_not_the_nodes(root):
    host.start_process(root, ("/usr/bin/nvidia-cuda-mps-control", "-d"), proctable.pod_cgroup("1111-2222"))
    assert mps.read(root / "proc", root / "mps").value.daemon_alive == Known(False)
    # The device plugin's daemon runs in a pod too, and writes this on the host.
    (root / "mps/.ready").touch()
    assert mps.read(root / "proc", root / "mps").value.daemon_alive == Known(True)


YAML = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      name: not-a-device
  name: "0"
- name: GPU-7f3c
  containerEdits:
    env:
    - A=b
kind: nvidia.com/gpu
"""


def test_cdi_specs(root):
    folder = root / "cdi"
    (folder / "nvidia.yaml").write_text(YAML)
    (folder / "mig.json").write_text(
        json.dumps({"kind": "nvidia.com/mig", "devices": [{"name": "MIG-1"}, {"name": "all"}]})
    )
    (folder / "other.json").write_text(json.dumps({"kind": "example.com/nic", "devices": [{"name": "x"}]}))
    (folder / "readme.txt").write_text("no")
    found = cdi.read((folder, root / "absent")).value
    assert [(spec.kind, spec.devices) for spec in found] == [
        ("nvidia.com/gpu", ("0", "GPU-7f3c")),
        ("nvidia.com/mig", ("MIG-1", "all")),
    ]
    assert all(spec.written_at is not None for spec in found)


@pytest.mark.parametrize("text", ["{", "[]", '{"devices": []}', "\x00"])
def test_a_broken_cdi_spec_makes_the_plane_unknown(tmp_path, text):
    (tmp_path / "nvidia.json").write_text(text)
    found = cdi.read((tmp_path,))
    assert found.reason == "Malformed"
    assert "nvidia.json" in found.detail


@given(st.text(max_size=300))
def test_no_yaml_raises_anything_but_a_value_error(text):
    try:
        kind, devices = cdi.from_yaml(text)
    except ValueError:
        return
    assert kind
    assert all(isinstance(device, str) for device in devices)


def test_the_library_is_found_in_the_order_of_the_roots(root, tmp_path):
    first = library.find((str(tmp_path / "nowhere"), str(root / "driver"), "/"))
    assert first == root / "driver/usr/lib64/libnvidia-ml.so.1"
    before = library.mark(first)
    host.install_library(root)
    assert library.mark(first) != before
    host.remove_library(root)
    assert library.find((str(root / "driver"),)) is None
    assert library.mark(first) is None


def test_the_modules_version_from_sysfs_or_procfs(root):
    version = host.read_state(root).driver
    assert library.read_module_version(root / "proc", root / "sys") == Known(version)
    (root / "sys/module/nvidia/version").unlink()
    assert library.read_module_version(root / "proc", root / "sys") == Known(version)
    host.unload_driver(root) if (root / "sys/module/nvidia").exists() else None
    assert reason(library.read_module_version(root / "proc", root / "sys")) == "DRIVER_NOT_LOADED"


def test_uuids_that_the_kernel_module_knows(root):
    state = host.read_state(root)
    assert library.read_uuids(root / "proc") == {gpu.pci: gpu.uuid for gpu in state.gpus}
    assert library.read_uuids(root / "nowhere") == {}


@given(st.integers(0, 1 << 32))
def test_every_health_mask_has_words(mask):
    words = fabric.health(mask)
    assert len(words) == 7
    assert all(words.values())


@pytest.mark.parametrize(
    ("board_mib", "slices", "mib", "name"),
    [
        (40960, 1, 4864, "1g.5gb"),
        (40960, 3, 19968, "3g.20gb"),
        (81920, 1, 9728, "1g.10gb"),
        (81920, 2, 19968, "2g.20gb"),
        (81920, 7, 80384, "7g.80gb"),
        (81559, 1, 20096, "1g.20gb"),
        (81559, 3, 40448, "3g.40gb"),
        (143771, 1, 16384, "1g.18gb"),
        (143771, 3, 71168, "3g.71gb"),
    ],
)
def test_computed_profile_names_are_the_drivers(board_mib, slices, mib, name):
    """On boards that topology.md section 3 captured, the plugin's arithmetic gives the driver's names."""
    assert mig.computed_profile(slices, slices, mib << 20, board_mib << 20) == name


@pytest.mark.parametrize("btime", ["x", "", "-1", "99999999999999999999", "253402300799", "9" * 5000])
def test_a_clock_of_the_host_that_makes_no_sense_is_a_reason(root, btime):
    (root / "proc/stat").write_text(f"cpu 1\nbtime {btime}\n")
    assert reason(processes.read_boot(root / "proc")) == "Unreadable"
    assert reason(processes.list_named(root / "proc", ("kubelet",))) == "Unreadable"


@pytest.mark.parametrize("ticks", ["9" * 30, "-" + "9" * 30, "9" * 400, "x"])
def test_a_process_that_started_at_no_time_is_passed_over(root, ticks):
    (pid,) = proctable.pids_named(root, "kubelet")
    fields = ["S", "1", *["0"] * 17, ticks, *["0"] * 30]
    (root / f"proc/{pid}/stat").write_text(f"{pid} (kubelet) {' '.join(fields)}\n")
    assert processes.list_named(root / "proc", ("kubelet",)) == Known(())
