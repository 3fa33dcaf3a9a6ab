"""A reader with less privilege answers as hack/matrix/profiles.py says it does: a reason for each plane, never an empty list."""

import pathlib

from agent.model.privilege import Privilege
from agent.reader import processes
from hack.matrix import profiles
from muster.model.reading import Known, Unknown
from tests import builders
from tests.agent.reader import world

OWN = pathlib.Path("/proc")
LACKS = frozenset({Privilege.HOST_PID, Privilege.HOST_FILES, Privilege.KERNEL_LOG})


def injected(root):
    """Settings of a reader that sees its own processes, and nothing of the host but the GPUs."""
    absent = root / "not-mounted"
    return {
        "proc_root": OWN,
        "kmsg_path": absent / "kmsg",
        "cdi_dirs": f"{absent}/etc/cdi,{absent}/run/cdi",
        "device_plugins_dir": absent / "device-plugins",
        "mps_root": absent / "mps",
    }


async def test_an_injected_reader_gives_a_reason_for_what_it_cannot_see(tmp_path):
    async with world.running(tmp_path, **injected(tmp_path)) as running:
        nvml = await running.nvml(with_static=True, with_processes=True)
        log, specs = await running.client.read_kernel_log(), await running.client.read_cdi()
        host, mps = await running.client.read_host(), await running.client.read_mps()
    assert len(nvml.devices) == 8
    assert all(gpu.error == "" for gpu in nvml.devices)
    assert (world.reason(log), world.reason(specs)) == ("Unreadable", "DirectoryMissing")
    assert isinstance(host.boot, Known)
    if processes.has_host_view(OWN):
        return  # this machine's own /proc is the host's: nothing below is lacking here
    lacking = [gpu.processes for gpu in nvml.devices]
    lacking += [host.kubelet_started_at, host.plugins, mps]
    assert {world.reason(reading) for reading in lacking} == {"NoHostPidView"}


def test_the_matrix_takes_the_same_planes_away():
    """Reasons differ where only a person reads them; what is Known does not."""
    seen = profiles.seen_by(LACKS, builders.a_node(kernel_log=Known(()), cdi=Known(()), mps=Known(())))
    assert all(isinstance(gpu.processes, Unknown) for gpu in seen.nvml.value.devices)
    assert all(isinstance(reading, Unknown) for reading in (seen.kernel_log, seen.cdi, seen.mps))
    assert isinstance(seen.kubelet.value.started_at, Unknown)
    assert isinstance(seen.boot, Known)
