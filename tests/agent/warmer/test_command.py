"""The program `muster-agent warm`: its exit statuses, what it serves, and what is left when it is killed."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from agent.sources.warmer import WarmerClient
from agent.warmer.client import Client
from hack.images import oci
from muster.model.warmth import Hold, Level

ENDED_SECONDS = 60


def arguments(runtime, tmp_path, **more):
    flags = {
        "socket": tmp_path / "w.sock",
        "containerd-socket": runtime.socket,
        "registry-hosts-dir": runtime.registries,
        "poll-seconds": 0.5,
        "quiet-seconds": 0.5,
        **more,
    }
    return [
        sys.executable,
        "-m",
        "agent.main",
        "warm",
        *(part for name, value in flags.items() for part in (f"--{name}", str(value))),
    ]


def ended(command):
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=ENDED_SECONDS)


def a_list(tmp_path, *entries):
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"budget_bytes": 10**12, "images": list(entries)}))
    return path


class Running:
    """The program, and what the agent hears of it."""

    def __init__(self, command, log):
        self.heard = []
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        path = command[command.index("--socket") + 1]
        self._task = asyncio.create_task(WarmerClient(path, self.heard.append).run())

    async def until(self, condition):
        async with asyncio.timeout(ENDED_SECONDS):
            while not self.heard or not condition(self.heard[-1]):
                assert self.process.poll() is None, "the program ended"
                await asyncio.sleep(0.05)
        return self.heard[-1]

    async def end(self, number):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, ENDED_SECONDS)


@pytest.fixture
async def start(tmp_path):
    made = []

    def begin(command):
        made.append(Running(command, tmp_path / "warmer.log"))
        return made[-1]

    yield begin
    for each in made:
        if each.process.poll() is None:
            await each.end(signal.SIGKILL)


def is_warm(report):
    return any(
        image.is_wanted and image.level is Level.UNPACKED and image.hold is not Hold.NOTHING for image in report.images
    )


@pytest.mark.parametrize("runtime", ["debian"], indirect=True)
def test_a_list_with_mistakes_ends_it_with_each_of_them(runtime, tmp_path):
    path = a_list(tmp_path, {"image": "a.io/b"}, {"image": "a.io/c:1", "pin": 3})
    done = ended(arguments(runtime, tmp_path, list=path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"--list: {path}: $.images[0].image: 'a.io/b' has no tag and no digest: `latest` moves, so say which",
        f"--list: {path}: $.images[1].pin: is neither true nor false",
    ]


@pytest.mark.parametrize("runtime", ["debian"], indirect=True)
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"snapshotter": "stargz"}, "--snapshotter: containerd has no 'stargz', only "),
        ({"list": "/nowhere.json"}, "--list: /nowhere.json is not a readable file"),
        ({"disk-share": "0.9"}, "--disk-share: 0.9 is above 0.8"),
        ({"owner": "a b"}, "--owner: 'a b' is not letters"),
        ({"platform": "linux"}, "--platform: 'linux' is not os/architecture"),
        ({"credential-provider": "/bin/true"}, "--credential-provider and --credential-images"),
        ({"hint-registries": "a.io/b"}, "--hint-registries: 'a.io/b' is not a registry's host"),
    ],
)
def test_settings_that_do_not_fit_end_it(runtime, tmp_path, flags, problem):
    done = ended(arguments(runtime, tmp_path, **flags))
    assert done.returncode == 2
    assert problem in done.stderr


async def test_a_killed_warmer_goes_on_where_it_was(runtime, tmp_path, faulty, content, start):
    """kill -9 midway: the next one finds its lease and fetches what is missing, no more."""
    runtime.trust(faulty.address)
    faulty.bytes_per_second = 6 * oci.MIB
    name = f"{faulty.address}/ml/cuda:v1"
    command = arguments(runtime, tmp_path, list=a_list(tmp_path, {"image": name, "mode": "shadow"}))
    first = start(command)
    await first.until(lambda report: any(0 < image.bytes_missing < image.bytes_total * 0.6 for image in report.images))
    await first.end(signal.SIGKILL)
    faulty.bytes_per_second = None
    second = start(command)
    await second.until(is_warm)
    assert faulty.body_bytes < sum(len(blob.data) for blob in content.blobs) + 3 * oci.MIB
    client = Client(runtime.socket, "muster")
    assert len(await client.list_leases()) == 1
    await client.close()
    done = await asyncio.to_thread(ended, command)
    assert (done.returncode, "another warmer answers there" in done.stderr) == (2, True)
    assert await second.end(signal.SIGTERM) == 0


async def test_a_pin_is_set_where_it_has_an_effect_and_taken_away_again(runtime, tmp_path, faulty, start):
    """containerd 1.6.20 keeps the label and pins nothing; 2.2 tells the kubelet."""
    runtime.trust(faulty.address)
    name = f"{faulty.address}/ml/cuda:v1"
    running = start(arguments(runtime, tmp_path, list=a_list(tmp_path, {"image": name, "pin": True})))
    await running.until(lambda report: any(image.is_wanted and image.is_pinned for image in report.images))
    client = Client(runtime.socket, "muster")
    assert (await client.cri_image(name)).pinned == (runtime.version >= (1, 7))
    await running.end(signal.SIGTERM)
    again = start(arguments(runtime, tmp_path, list=a_list(tmp_path, {"image": name})))
    await again.until(lambda report: any(image.is_wanted and not image.is_pinned for image in report.images))
    assert not (await client.cri_image(name)).pinned
    assert is_warm(again.heard[-1]), "the image is still there"
    await client.close()


async def test_a_bandwidth_cap_makes_the_download_ours(runtime, tmp_path, faulty, content, start):
    """The rate is not asserted (no durations): that every layer came to us alone is, and that CRI calls it complete."""
    runtime.trust(faulty.address)
    name = f"{faulty.address}/ml/cuda:v1"
    flags = {"list": a_list(tmp_path, {"image": name}), "bandwidth-mib-per-second": 50}
    running = start(arguments(runtime, tmp_path, **flags))
    report = await running.until(is_warm)
    assert [image.hold for image in report.images] == [Hold.VISIBLE]
    asked = [path.rpartition("/")[2] for method, path in faulty.requests if method == "GET" and "/blobs/" in path]
    layers = [layer.digest for layer in content.blobs[1:-1]]
    assert all(asked.count(layer) == 1 for layer in layers)
    assert "complete" in runtime.run_ctr("images", "check", f"name=={name}")
