"""Real containerd, a real registry, and a proxy between them that misbehaves on order.

`runtime` is Debian's containerd and the containerd 2 that hack/cluster builds; each test gets its own folder.
"""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import shutil
import time

import pytest

from agent.core import warmlist, warmref
from agent.model.warm import Mode, Wanted
from agent.warmer import command
from agent.warmer.client import Client
from agent.warmer.config import WarmerConfig
from hack.images import oci, proxy, registry
from hack.images import runtime as runtimes

LAYER_BYTES = 8 * oci.MIB
"""Unpacked; half of it compressed."""
WAIT_SECONDS = 60.0
FOLDER = pathlib.Path(__file__).parent


NEEDS = {
    "debian": ("debian:containerd", "root"),
    "built": ("containerd", "containerd-shim-runc-v2", "ctr", "root"),
}
"""Which containerd -> what it takes (hack/cluster/machine.py)."""
REGISTRIES = {"origin", "guarded"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Name what a test needs by the fixtures that it asks for. Those that name it themselves also want to be alone."""
    for item in items:
        if FOLDER not in item.path.parents or item.get_closest_marker("real"):
            continue
        binary = item.callspec.params.get("runtime") if hasattr(item, "callspec") else None
        needs = (*NEEDS.get(binary, ()), *["docker-registry"] * bool(REGISTRIES & set(item.fixturenames)))
        if needs:
            item.add_marker(pytest.mark.real(*needs))
            item.add_marker(pytest.mark.shares)


@pytest.fixture(scope="session")
def content():
    """Return an image of four layers, 16 MiB compressed."""
    return oci.image([oci.generated(LAYER_BYTES, seed) for seed in range(4)])


@pytest.fixture(scope="session")
def origin(tmp_path_factory, content):
    """Return an open registry that holds ml/cuda:v1."""
    found = registry.Registry(tmp_path_factory.mktemp("registry"))
    found.start()
    oci.push(found.address, "ml/cuda", ["v1"], content)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory, content):
    """Return a registry behind a password that holds ml/private:v1."""
    found = registry.Registry(tmp_path_factory.mktemp("guarded"), with_password=True)
    found.start()
    oci.push(found.address, "ml/private", ["v1"], content, found.credentials)
    yield found
    found.stop()


@pytest.fixture
def faulty(origin):
    """Return a proxy before the open registry."""
    made = proxy.Proxy(origin.address)
    made.start()
    yield made
    made.stop()


@pytest.fixture(params=list(NEEDS))
def runtime(request, tmp_path):
    """Return a containerd, started."""
    binary = runtimes.debian() if request.param == "debian" else runtimes.built()
    made = runtimes.Containerd(tmp_path / "c", binary)
    made.start()
    yield made
    made.stop()
    made.remove()


@pytest.fixture
def name(runtime, faulty):
    """Return the name of the image behind the proxy, which the runtime trusts."""
    runtime.trust(faulty.address)
    return f"{faulty.address}/ml/cuda:v1"


@dataclasses.dataclass
class World:
    """One warmer on one containerd."""

    runtime: runtimes.Containerd
    folder: pathlib.Path
    settings: dict
    client: Client = None
    engine: object = None
    task: asyncio.Task = None

    def config(self):
        return WarmerConfig(
            **{
                "socket": self.folder / "warmer.sock",
                "containerd_socket": self.runtime.socket,
                "registry_hosts_dir": self.runtime.registries,
                "quiet_seconds": 0.5,
                "poll_seconds": 0.5,
                "stall_seconds": 30.0,
                "io_pressure_percent": 100.0,
                **self.settings,
            }
        )

    async def start(self, *wanted, budget=10**12):
        """Start warming these images."""
        self.client = Client(self.runtime.socket, "muster")
        listed = warmlist.WarmList(wanted=wanted, budget_bytes=budget)
        self.engine = command.wired(self.config(), listed, self.client)
        self.task = asyncio.create_task(self.engine.run())

    async def stop(self):
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            await self.client.close()
            self.task = None

    async def until(self, condition, what="the condition"):
        """Wait until the newest report fulfils a condition; return the report."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if self.task.done():
                self.task.result()
            report = self.engine.warmth
            if report is not None and condition(report):
                return report
            await asyncio.sleep(0.05)
        pytest.fail(f"waited for {what}: {self.engine.warmth}")

    def image(self, name, report=None):
        """Return what is told of an image."""
        found = [image for image in (report or self.engine.warmth).images if image.reference == name]
        return found[0] if found else None


@pytest.fixture
async def world(runtime, tmp_path):
    """Return a function that makes a world; its warmer ends with the test."""
    made = []

    def make(**settings):
        made.append(World(runtime=runtime, folder=tmp_path, settings=settings))
        return made[-1]

    yield make
    for each in made:
        await each.stop()


def wanted(name, mode=Mode.AUTO, **more):
    reference = warmref.parse(name)
    assert hasattr(reference, "host"), reference
    return Wanted(reference=reference, mode=mode, **more)


@pytest.fixture(name="wanted")
def wanted_fixture():
    """Give wanted to test modules, which cannot import a conftest."""
    return wanted


@pytest.fixture
def small_disk(tmp_path):
    """Return a file system of 48 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("no root: a small file system cannot be mounted")
    assert os.system(f"mount -t tmpfs -o size=48m muster-test {folder}") == 0
    yield folder
    with contextlib.suppress(OSError):
        os.system(f"umount -l {folder}")
