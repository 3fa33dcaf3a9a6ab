"""The rest of a fake GPU host: what a reader finds in sysfs, procfs, /dev and the kernel log, beside the fake driver.

    <root>/sys/bus/pci/devices/<addr>/      vendor device class numa_node driver -> iommu_group ->
    <root>/sys/module/nvidia/version
    <root>/proc/                            stat uptime devices sys/kernel/random/boot_id <pid>/...
    <root>/proc/driver/nvidia/              version gpus/<addr>/information capabilities/gpu<minor>/mig/...
    <root>/dev/                             nvidia<minor> nvidiactl nvidia-uvm nvidia-uvm-tools nvidia-caps/
    <root>/kmsg                             the kernel log, one record a line
    <root>/driver/usr/lib64/                libnvidia-ml.so.1
    <root>/device-plugins/ plugins_registry/  sockets of kubelet and plugin, of DRA drivers
    <root>/cdi/ mps/                        CDI specs, the MPS daemon's files
    <root>/nvidia.state                     the fake driver's state file

In: a root and a fakenvml.State. Out: files, and edits of them: `apply` a new state, processes, `log`, `reboot`;
pcibus.py edits the bus. `reader_settings` gives what a reader on this host is started with.

Invariant: an edit here changes what a real event would change and no more; a lost GPU stays on the bus and in /dev.

Why device files are links to /dev/null: a character device without mknod's privilege; /proc/devices gives its major.
"""

import datetime
import os
import pathlib
import shutil
import time
import uuid as uuid_module

from hack import fakenvml
from hack.fakenode import pcibus, proctable, sockets
from hack.fakenode.proctable import Process

KUBELET = ("/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml")
PLUGIN = ("nvidia-device-plugin", "--mig-strategy=mixed")
PLUGIN_SOCKET = "nvidia-gpu.sock"
KUBELET_SOCKET = "kubelet.sock"
CONTROL_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
SYSTEM_CGROUP = "0::/system.slice/kubelet.service\n"


def make(
    root: pathlib.Path, state: fakenvml.State, *, booted_at: datetime.datetime | None = None, is_serving: bool = True
) -> None:
    """Build the host under an existing folder; by default with kubelet and device plugin up since a minute after boot."""
    for folder in ("proc/sys/kernel/random", "dev", "device-plugins", "plugins_registry", "cdi", "mps"):
        (root / folder).mkdir(parents=True)
    (root / "kmsg").touch()
    _write_boot(root, booted_at or _now() - datetime.timedelta(hours=1))
    for group, gpu in enumerate(state.gpus, start=40):
        pcibus.add(root, gpu.pci, device=gpu.pci_device >> 16, numa_node=gpu.numa_node, iommu_group=group)
    # The host bridge is on every bus and is nobody's GPU.
    pcibus.add(root, "0000:00:00.0", vendor=0x8086, device=0x09A2, class_=0x060000, driver=None)
    proctable.add(root, Process(pid=2, arguments=("kthreadd",), cgroup="0::/\n"), proctable.boot_time(root))
    install_library(root)
    apply(root, state)
    if is_serving:
        soon = proctable.boot_time(root) + datetime.timedelta(minutes=1)
        start_kubelet(root, at=soon)
        start_plugin(root, at=soon + datetime.timedelta(seconds=5))


def state_path(root: pathlib.Path) -> pathlib.Path:
    """Return where the host's fake driver has its state."""
    return root / "nvidia.state"


def environment(root: pathlib.Path) -> dict[str, str]:
    """Return what a process on this host needs to load the fake driver."""
    return fakenvml.environment(state_path(root))


def reader_settings(root: pathlib.Path) -> dict[str, str]:
    """Return the reader's settings that point it at this host, by field name."""
    return {
        "sysfs_root": str(root / "sys"),
        "proc_root": str(root / "proc"),
        "dev_root": str(root / "dev"),
        "kmsg_path": str(root / "kmsg"),
        "driver_roots": str(root / "driver"),
        "device_plugins_dir": str(root / "device-plugins"),
        "plugins_registry_dir": str(root / "plugins_registry"),
        "host_root": str(root),
        "cdi_dirs": str(root / "cdi"),
        "mps_root": str(root / "mps"),
    }


def read_state(root: pathlib.Path) -> fakenvml.State:
    """Return the driver's state of now."""
    return fakenvml.read(state_path(root))


# -- the driver


def apply(root: pathlib.Path, state: fakenvml.State) -> None:
    """Give the driver a new state, and show it wherever the kernel module shows it too."""
    fakenvml.write(state, state_path(root))
    set_module_version(root, state.driver)
    _write_devices(root)
    gpus = root / "proc/driver/nvidia/gpus"
    capabilities = root / "proc/driver/nvidia/capabilities"
    for folder in (gpus, capabilities):
        shutil.rmtree(folder, ignore_errors=True)
    for gpu in state.gpus:
        (gpus / gpu.pci).mkdir(parents=True)
        text = f"Model: \t\t {gpu.name}\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.pci}\nDevice Minor: \t {gpu.minor}\n"
        (gpus / gpu.pci / "information").write_text(text)
        for instance in gpu.mig:
            _write_capability(root, gpu.minor, instance)
    wanted = {*CONTROL_FILES, *(f"nvidia{gpu.minor}" for gpu in state.gpus)}
    for name in wanted:
        add_device_file(root, name)
    for path in (root / "dev").glob("nvidia*"):
        if path.name not in wanted and not path.is_dir():
            path.unlink()


def set_module_version(root: pathlib.Path, version: str) -> None:
    """Load a kernel module of this version; the library's may differ (faults.md D1)."""
    (root / "sys/module/nvidia").mkdir(parents=True, exist_ok=True)
    (root / "sys/module/nvidia/version").write_text(f"{version}\n")
    (root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
    line = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@U22)\n"
    (root / "proc/driver/nvidia/version").write_text(line)


def unload_driver(root: pathlib.Path) -> None:
    """Take the kernel module away: no state file is how the library sees it. `apply` loads it again."""
    state_path(root).unlink()
    shutil.rmtree(root / "sys/module/nvidia")
    shutil.rmtree(root / "proc/driver/nvidia")
    for path in (root / "dev").glob("nvidia*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def install_library(root: pathlib.Path) -> None:
    """Install the driver's library where a reader looks for it."""
    folder = root / "driver/usr/lib64"
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "libnvidia-ml.so.new"
    shutil.copyfile(fakenvml.build(), unfinished)
    unfinished.replace(folder / "libnvidia-ml.so.1")


def remove_library(root: pathlib.Path) -> None:
    """Remove the driver's library."""
    (root / "driver/usr/lib64/libnvidia-ml.so.1").unlink()


def add_device_file(root: pathlib.Path, name: str) -> None:
    """Create a device file, if it is not there."""
    path = root / "dev" / name
    path.parent.mkdir(exist_ok=True)
    if not path.is_symlink():
        path.symlink_to("/dev/null")


def remove_device_file(root: pathlib.Path, name: str) -> None:
    """Remove a device file: a container runtime can no longer inject it (faults.md D6)."""
    (root / "dev" / name).unlink()


# -- processes


def start_kubelet(root: pathlib.Path, *, at: datetime.datetime | None = None) -> int:
    """Start a kubelet; return its pid. Its registration socket appears as a plain file, and nobody is connected to it."""
    pid = start_process(root, KUBELET, SYSTEM_CGROUP, at=at)
    (root / "device-plugins" / KUBELET_SOCKET).touch()
    show_sockets(root)
    return pid


def stop_kubelet(root: pathlib.Path) -> None:
    """Stop every kubelet."""
    for pid in proctable.pids_named(root, "kubelet"):
        proctable.remove(root, pid)
    (root / "device-plugins" / KUBELET_SOCKET).unlink(missing_ok=True)


def show_sockets(root: pathlib.Path) -> None:
    """Show the kubelet's namespace the unix sockets that the kernel has now below this host's root."""
    for pid in proctable.pids_named(root, "kubelet"):
        table = root / "proc" / str(pid) / "net" / "unix"
        table.parent.mkdir(exist_ok=True)
        fresh = table.with_suffix(".new")
        fresh.write_text(sockets.kernel_table(root))
        fresh.replace(table)


def start_plugin(root: pathlib.Path, *, at: datetime.datetime | None = None) -> int:
    """Start a device plugin in a pod of its own; its socket appears as a plain file, which is all that is looked at."""
    pid = start_process(root, PLUGIN, proctable.pod_cgroup("plugin-0"), at=at)
    (root / "device-plugins" / PLUGIN_SOCKET).touch()
    return pid


def stop_plugin(root: pathlib.Path) -> None:
    """Stop every device plugin."""
    for pid in proctable.pids_named(root, PLUGIN[0]):
        proctable.remove(root, pid)
    (root / "device-plugins" / PLUGIN_SOCKET).unlink(missing_ok=True)


def start_process(
    root: pathlib.Path,
    arguments: tuple[str, ...],
    cgroup: str = proctable.HOST_CGROUP,
    *,
    at: datetime.datetime | None = None,
) -> int:
    """Start a process that uses no GPU; return its pid."""
    process = Process(pid=proctable.next_pid(root), arguments=arguments, cgroup=cgroup)
    proctable.add(root, process, at or _now())
    return process.pid


def start_gpu_process(
    root: pathlib.Path, gpu: int, cgroup: str = proctable.HOST_CGROUP, *, name: str = "python3", **what: int | None
) -> int:
    """Start a compute process on a GPU; `what` are fields of fakenvml.Process. Return its pid."""
    pid = start_process(root, (f"/usr/bin/{name}", "train.py"), cgroup)
    process = fakenvml.Process(pid=pid, **what)
    fakenvml.write(read_state(root).with_process(gpu, process), state_path(root))
    return pid


def end_process(root: pathlib.Path, pid: int) -> None:
    """End a process; the driver forgets it too."""
    fakenvml.write(read_state(root).without_process(pid), state_path(root))
    proctable.remove(root, pid)


# -- the kernel


def log(root: pathlib.Path, text: str, *, at: datetime.datetime | None = None) -> None:
    """Append a record to the kernel log, in the form that a read of /dev/kmsg gives."""
    path = root / "kmsg"
    usec = round(((at or _now()) - proctable.boot_time(root)).total_seconds() * 1_000_000)
    sequence = path.read_bytes().count(b"\n")
    with path.open("a") as file:
        file.write(f"3,{sequence},{usec},-;{text}\n")


def log_xid(root: pathlib.Path, gpu: int, code: int, *, gi: int | None = None, ci: int | None = None) -> None:
    """Log an Xid as the driver words it: with the address less its function, and the instances where it has them."""
    address = read_state(root).gpus[gpu].pci.rpartition(".")[0]
    place = "".join([f" GPU-I:{gi:02d}" if gi is not None else "", f" GPU-CI:{ci:02d}" if ci is not None else ""])
    log(root, f"NVRM: Xid (PCI:{address}{place}): {code}, pid='<unknown>', name=<unknown>")


def reboot(root: pathlib.Path, *, at: datetime.datetime | None = None) -> None:
    """Boot anew: new boot id, no processes, an empty log, the driver as a reboot leaves it."""
    state = read_state(root)
    for folder in list((root / "proc").glob("[0-9]*")):
        proctable.remove(root, int(folder.name))
    for name in (PLUGIN_SOCKET, KUBELET_SOCKET):
        (root / "device-plugins" / name).unlink(missing_ok=True)
    _write_boot(root, at or _now())
    (root / "kmsg").write_text("")
    proctable.add(root, Process(pid=2, arguments=("kthreadd",), cgroup="0::/\n"), proctable.boot_time(root))
    apply(root, state.rebooted())


def _now() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC)


def _write_boot(root: pathlib.Path, at: datetime.datetime) -> None:
    (root / "proc" / proctable.BOOT_FILE).write_text(str(int(at.timestamp())))
    (root / "proc/stat").write_text(f"cpu  1 0 1 1 0 0 0 0 0 0\nbtime {int(at.timestamp())}\nprocesses 4242\n")
    (root / "proc/uptime").write_text(f"{(_now() - at).total_seconds():.2f} 0.00\n")
    (root / "proc/sys/kernel/random/boot_id").write_text(f"{uuid_module.uuid4()}\n")


def _write_devices(root: pathlib.Path) -> None:
    """Name the major of /dev/null, which the device files are, as the driver's."""
    major = os.major(os.stat("/dev/null").st_rdev)
    rows = "".join(f"{major:3} {name}\n" for name in ("nvidia", "nvidia-uvm", "nvidia-caps"))
    (root / "proc/devices").write_text(f"Character devices:\n{rows}\nBlock devices:\n  8 sd\n")


def _write_capability(root: pathlib.Path, minor: int, instance: fakenvml.MigInstance) -> None:
    """Show an instance's access files and their device nodes: two minors an instance, as many apart as the driver's."""
    folder = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{instance.gi}"
    number = 3 + minor * 135 + instance.gi * 9  # the driver leaves room for 15 GPU instances of 8 compute instances
    for path, capability in ((folder, number), (folder / f"ci{instance.ci}", number + 1 + instance.ci)):
        path.mkdir(parents=True, exist_ok=True)
        (path / "access").write_text(f"DeviceFileMinor: {capability}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        add_device_file(root, f"nvidia-caps/nvidia-cap{capability}")
