"""What folders and the kernel's own table show of plugins and drivers."""

import contextlib
import doctest
import pathlib
import signal
import socket as sockets_of_python
import time

import pytest

from agent.reader import sockets
from hack.fakenode import sockets as fakes
from muster.model.reading import Known
from tests.agent.reader.world import reason

ROOTS = ("/var/lib/kubelet", "/var/lib/k0s/kubelet")


@pytest.fixture
def host(tmp_path):
    """A host with two kubelets' roots; the kubelet is in the first."""
    for root in ROOTS:
        (tmp_path / root[1:] / "device-plugins").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/plugins_registry").mkdir()
    (tmp_path / "var/lib/kubelet/device-plugins/kubelet.sock").touch()
    return tmp_path


def look(host):
    kubelet = host / "var/lib/kubelet"
    return sockets.look(kubelet / "device-plugins", kubelet / "plugins_registry", host, ROOTS)


def names(found):
    return [each.path.name for each in found]


@contextlib.contextmanager
def running(*arguments):
    """A program of hack/fakenode/sockets.py."""
    process = fakes.start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def wait_until():
    def wait(look):
        end = time.monotonic() + 30
        while not look():
            assert time.monotonic() < end, "never came true"
            time.sleep(0.02)

    return wait


def test_examples():
    results = doctest.testmod(sockets)
    assert results.attempted > 0
    assert results.failed == 0


def test_our_plugins_are_told_from_the_kubelets_socket_and_from_others(host):
    for name in ("nvidia-gpu.sock", "nvidia-mig-1g.5gb.sock", "intel.sock", "nvidia.txt"):
        (host / "var/lib/kubelet/device-plugins" / name).touch()
    listing = look(host)
    assert names(listing.plugins.value) == ["nvidia-gpu.sock", "nvidia-mig-1g.5gb.sock"]
    assert listing.elsewhere == ()


def test_a_plugin_in_a_folder_without_a_kubelet_is_elsewhere(host):
    other = host / "var/lib/k0s/kubelet/device-plugins"
    (other / "nvidia-gpu.sock").touch()
    listing = look(host)
    assert names(listing.elsewhere) == ["nvidia-gpu.sock"]
    assert sockets.folder_on_host(listing.elsewhere[0], host) == "/var/lib/k0s/kubelet/device-plugins"
    # With a kubelet of its own it is a plugin where it should be, and none of this one's.
    (other / "kubelet.sock").touch()
    assert look(host).elsewhere == ()


def test_one_folder_under_two_names_is_not_elsewhere(host):
    (host / "var/lib/kubelet/device-plugins/nvidia-gpu.sock").touch()
    other = host / "var/lib/k0s/kubelet"
    (other / "device-plugins").rmdir()
    (other / "device-plugins").symlink_to(host / "var/lib/kubelet/device-plugins")
    (host / "var/lib/kubelet/device-plugins/kubelet.sock").unlink()
    assert look(host).elsewhere == ()


def test_registration_sockets_are_found_in_folders_too(host):
    registry = host / "var/lib/kubelet/plugins_registry"
    (registry / "gpu.nvidia.com-reg.sock").touch()
    (registry / "nested").mkdir()
    (registry / "nested" / "csi-reg.sock").touch()
    assert names(look(host).drivers.value) == ["gpu.nvidia.com-reg.sock", "csi-reg.sock"]


def test_a_registry_whose_kubelet_is_elsewhere_says_nothing(host):
    (host / "var/lib/kubelet/device-plugins/kubelet.sock").unlink()
    assert reason(look(host).drivers) == "NoKubeletHere"


def test_folders_that_are_not_mounted_are_unread(tmp_path):
    listing = look(tmp_path)
    assert (reason(listing.plugins), reason(listing.drivers), listing.elsewhere) == ("Unreadable", "Unreadable", ())


def test_a_new_file_of_the_same_name_is_another_socket(host):
    path = host / "var/lib/kubelet/device-plugins/nvidia-gpu.sock"
    path.touch()
    (before,) = look(host).plugins.value
    path.unlink()
    path.touch()
    (after,) = look(host).plugins.value
    assert before != after


def connected(folder, proc):
    """Ask as the reader does, of a kubelet whose namespace has this folder's sockets."""
    table = proc / "7/net"
    table.mkdir(parents=True, exist_ok=True)
    (table / "unix").write_text(fakes.kernel_table(folder))
    return sockets.read_connected(proc, (7,))


def test_the_kernel_shows_the_kubelets_stream_and_its_end(tmp_path, wait_until):
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    path = str(folder / "nvidia-gpu.sock")
    with running("plugin", path) as plugin:
        assert connected(folder, tmp_path) == Known(False)
        with running("stream", path):
            assert connected(folder, tmp_path) == Known(True)
            plugin.send_signal(signal.SIGSTOP)  # a stopped plugin still has its stream
            assert connected(folder, tmp_path) == Known(True)
            plugin.send_signal(signal.SIGCONT)
        wait_until(lambda: connected(folder, tmp_path) == Known(False))


def test_a_connection_that_nobody_accepted_is_none(tmp_path):
    """A plugin that was stopped leaves the kubelet waiting in its queue."""
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(sockets_of_python.socket(sockets_of_python.AF_UNIX))
        listener.bind(str(folder / "nvidia-gpu.sock"))
        listener.listen()
        client = stack.enter_context(sockets_of_python.socket(sockets_of_python.AF_UNIX))
        client.connect(str(folder / "nvidia-gpu.sock"))
        assert "nvidia-gpu.sock" in fakes.kernel_table(folder)
        assert connected(folder, tmp_path) == Known(False)


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ("0: 3 0 0 0001 03 99 /var/lib/kubelet/device-plugins/nvidia-gpu.sock", True),
        ("0: 3 0 0 0001 03 99 /device-plugin/nvidiaGPU-170000.sock", True),
        ("0: 3 0 0 0001 03 99 /var/lib/kubelet/device-plugins/intel.sock", False),
        ("0: 3 0 0 0001 03 99 /run/nvidia-persistenced/nvidia-gpu.sock", False),
        ("0: 3 0 0 0001 03 99", False),
        ("0: 3 0 0 0001 03 99 @/device-plugins/nvidia\udcff.sock", False),
    ],
)
def test_only_a_stream_to_a_plugin_of_ours_counts(tmp_path, line, is_ours):
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/unix").write_bytes(f"Num\n{line}\n".encode(errors="surrogateescape"))
    if "\udcff" in line:
        is_ours = True  # a name that is no text is a name still
    assert sockets.read_connected(tmp_path, (7,)) == Known(is_ours)


def test_without_a_kubelet_or_its_table_nothing_is_known(tmp_path):
    assert reason(sockets.read_connected(tmp_path, ())) == "NotFound"
    assert reason(sockets.read_connected(pathlib.Path(tmp_path), (7,))) == "Unreadable"


def test_a_table_that_was_cut_denies_nothing(tmp_path, monkeypatch):
    """The kubelet's stream may stand behind the end: on a node with very many sockets nobody lost its plugin."""
    table = tmp_path / "7/net/unix"
    table.parent.mkdir(parents=True)
    table.write_text("x" * 100)
    assert sockets.read_connected(tmp_path, (7,)) == Known(False)
    monkeypatch.setattr(sockets, "_LARGEST_TABLE_BYTES", 99)
    assert reason(sockets.read_connected(tmp_path, (7,))) == "TooLarge"
