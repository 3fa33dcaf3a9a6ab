"""The operator's command line, as a process against a real admitter: what it prints and its exit status."""

import asyncio
import json
import os
import pathlib
import sys

import pytest

from hack import pki
from muster.model.admission import Leased, Waiting
from muster.model.report import Verdict
from tests.admitter import admitters
from tests.admitter.admitters import a_gang, hear, heard_of

MUSTER = pathlib.Path(sys.executable).parent / "muster"


@pytest.fixture
def town(tmp_path):
    return admitters.Town(tmp_path)


async def muster(town, address, *arguments, **variables):
    """Run the program; return its exit status and what it printed."""
    files = town.files("operator")
    environment = {
        "PATH": os.environ["PATH"],
        "MUSTER_ADMITTER_ADDRESS": address,
        "MUSTER_ADMITTER_CA": str(files.ca),
        "MUSTER_ADMITTER_CERTIFICATE": str(files.certificate),
        "MUSTER_ADMITTER_KEY": str(files.key),
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        MUSTER, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_all_is_well(town):
    async with town.admitter() as (_, address), town.node(address, "n1"):
        await heard_of(town, address, 1)
        code, out, _ = await muster(town, address, "status")
        assert code == 0
        assert "admitter admitter-0, term 1" in out
        (row,) = [line.split() for line in out.splitlines() if line.startswith("n1")]
        assert row[:2] + row[3:8] == ["n1", "OK", "nvidia.com/gpu", "8", "8", "8", "8"]


async def test_a_node_with_a_fault_and_a_gang_that_waits(town):
    async with (
        town.admitter() as (_, address),
        town.node(address, "n1", free=0, verdict=Verdict.OVER),
        town.client(address) as admitter,
        admitter.admit(a_gang(name="train", gpus=8, count=1)) as gang,
    ):
        await heard_of(town, address, 1)
        await hear(gang.states(), Waiting)
        code, out, _ = await muster(town, address, "status", "--json")
        assert code == 1
        content = json.loads(out)
        assert [(node["node"], node["report"]["verdict"]) for node in content["nodes"]] == [("n1", "OVER")]
        assert [gang["state"] for gang in content["gangs"]] == ["waiting"]
        code, out, _ = await muster(town, address, "why", "gang/team-a/train")
        assert code == 1
        assert "needs 8 GPUs" in out
        assert "n1 OVER strict 0" in out
        code, out, _ = await muster(town, address, "why", "gang/team-a/train", "--json")
        assert (code, json.loads(out)["why"]["needed_units"]) == (1, "8")


async def test_a_gang_that_has_its_places(town):
    async with (
        town.admitter() as (_, address),
        town.node(address, "n1"),
        town.client(address) as admitter,
        admitter.admit(a_gang()) as gang,
    ):
        await hear(gang.states(), Leased)
        code, out, _ = await muster(town, address, "why", "gang/team-a/train")
        assert code == 0
        assert "main: n1: 8 nvidia.com/gpu" in out
        code, out, _ = await muster(town, address, "status", "--gpus")
        assert code == 0
        assert out.count("GPU-0000000") == 8
        assert "team-a/train" in out


async def test_bad_input(town, tmp_path):
    async with town.admitter() as (_, address):
        code, _, err = await muster(town, address, "why", "train")
        assert (code, "is neither gang/NAMESPACE/NAME nor pod/" in err) == (2, True)
        code, _, err = await muster(town, address, "why", "gang/team-a/nobody")
        assert (code, "has not asked here" in err) == (2, True)
    code, _, err = await muster(
        town, "x", "status", MUSTER_ADMITTER_CA=str(tmp_path / "none"), MUSTER_ADMITTER_KEY=str(tmp_path / "no")
    )
    assert code == 2
    assert "ca:" in err
    assert "key:" in err
    code, _, err = await muster(town, "x", "status", "--timeout-seconds", "soon")
    assert (code, "--timeout-seconds: 'soon' is not a number" in err) == (2, True)


async def test_no_answer(town):
    code, _, err = await muster(town, "127.0.0.1:1", "status", "--timeout-seconds", "0.5")
    assert (code, "no answer from 127.0.0.1:1" in err) == (3, True)


async def test_an_address_without_a_port_is_bad_input(town):
    for address in ("here", "127.0.0.1:99999", ":7443"):
        code, _, err = await muster(town, address, "status")
        assert (code, err) == (2, f"muster: --address: {address!r} is not host:port\n")


async def test_a_wrong_file_is_named_in_one_line(town):
    key = town.files("other").key
    code, _, err = await muster(town, "127.0.0.1:1", "status", MUSTER_ADMITTER_KEY=str(key))
    assert code == 2
    assert err.startswith(f"muster: --key: {key}: does not belong to --certificate ")
    assert len(err.splitlines()) == 1


async def test_who_may_not_ask_is_told_so(town):
    """A node's certificate is answered, and is bad input; one of another authority is closed out, with a hint."""
    async with town.admitter() as (_, address):
        node = town.world.authority.issue_node("n1")
        identity = {"MUSTER_ADMITTER_CERTIFICATE": str(node.certificate), "MUSTER_ADMITTER_KEY": str(node.key)}
        code, _, err = await muster(town, address, "status", **identity)
        assert (code, err) == (2, "muster: node n1 may only feed\n")
        stranger = pki.create(node.key.parent / "elsewhere").issue_client("me")
        identity = {"MUSTER_ADMITTER_CERTIFICATE": str(stranger.certificate), "MUSTER_ADMITTER_KEY": str(stranger.key)}
        code, _, err = await muster(town, address, "status", "--timeout-seconds", "2", **identity)
        assert (code, "no answer" in err, "certificate" in err) == (3, True, True)
