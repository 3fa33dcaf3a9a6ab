"""The program: what it refuses, what it serves, how it stops."""

import asyncio
import pathlib
import re
import signal
import sys
import urllib.request

import pytest

from hack import pki
from muster import client

PROGRAM = pathlib.Path(sys.executable).parent / "muster-admitter"

pytestmark = pytest.mark.e2e


@pytest.fixture
def authority(tmp_path):
    return pki.create(tmp_path / "pki")


def flags_of(tmp_path, authority, **flags):
    files = authority.issue_admitter()
    given = {
        "listen": "127.0.0.1:0",
        "metrics_address": "127.0.0.1:0",
        "state_dir": tmp_path / "state",
        "tls_ca": files.ca,
        "tls_certificate": files.certificate,
        "tls_key": files.key,
        **flags,
    }
    return [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]


async def start(*arguments):
    return await asyncio.create_subprocess_exec(PROGRAM, "run", *arguments, stderr=asyncio.subprocess.PIPE)


async def ended(process):
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_it_serves_and_stops_at_a_signal(tmp_path, authority):
    process = await start(*flags_of(tmp_path, authority))
    try:
        async with asyncio.timeout(60):
            line = (await process.stderr.readline()).decode()
        port, metrics = (int(re.search(rf'"{name}": ?(\d+)', line)[1]) for name in ("port", "metrics"))
        async with client.connect(f"127.0.0.1:{port}", authority.issue_client("operator")) as admitter:
            assert (await admitter.status(20)).term == 1
        for page, words in (("healthz", "ok"), ("readyz", "term 1"), ("metrics", "muster_admitter_term 1.0")):
            with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{metrics}/{page}") as answer:
                assert words in answer.read().decode()
    finally:
        process.send_signal(signal.SIGTERM)
        code, err = await ended(process)
    assert (code, "admitter stops" in err) == (0, True)
    assert (tmp_path / "state" / "term").read_text() == "1\n"


async def test_every_bad_setting_is_named_and_nothing_starts(tmp_path):
    process = await start("--listen", "x", "--state-dir", str(tmp_path / "state"))
    code, err = await ended(process)
    assert code == 2
    assert all(flag in err for flag in ("--tls-ca", "--tls-certificate", "--tls-key"))
    assert not (tmp_path / "state").exists()


REFUSED = {
    "a term that is none": ({"state_dir": "{folder}/broken"}, "--state-dir"),
    "a log that cannot be written": ({"decision_log": "{folder}/none/log"}, "--decision-log"),
    "a cluster file that is none": ({"cluster_file": "{folder}/broken/term"}, "--cluster-file"),
    "an address of somebody else": ({"listen": "192.0.2.1:1"}, "--listen"),
    "a probe address of somebody else": ({"metrics_address": "192.0.2.1:1"}, "--metrics-address"),
}


@pytest.mark.parametrize(("flags", "named"), REFUSED.values(), ids=REFUSED)
async def test_what_turns_out_not_to_fit_is_named(tmp_path, authority, flags, named):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "term").write_text("seven")
    given = {name: value.format(folder=tmp_path) for name, value in flags.items()}
    code, err = await ended(await start(*flags_of(tmp_path, authority, **given)))
    assert code == 2
    assert f"muster-admitter: {named}" in err


async def test_a_start_that_fails_takes_no_term(tmp_path, authority):
    """The next start is the first still, and need not listen for leases of a term that granted nothing."""
    code, err = await ended(await start(*flags_of(tmp_path, authority, listen="192.0.2.1:1")))
    assert code == 2
    assert "GRPC_VERBOSITY" not in err
    assert not (tmp_path / "state").exists()
