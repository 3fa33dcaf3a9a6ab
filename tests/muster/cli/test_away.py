"""What `muster` says while the admitter is away: a process, and a kubectl that answers as the real one does."""

import asyncio
import json
import os
import pathlib
import stat
import sys

import pytest

from tests.admitter import admitters

MUSTER = pathlib.Path(sys.executable).parent / "muster"
NOBODY = "127.0.0.1:1"

NODES = {
    "items": [
        {
            "metadata": {"name": "n1"},
            "spec": {"taints": [{"key": "muster.dev/untrusted", "value": "OVER", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                    {
                        "type": "GPUHealthy",
                        "status": "False",
                        "reason": "GpuLost",
                        "message": "GPU-3 lost GpuLost",
                        "lastTransitionTime": "2026-12-01T10:00:00Z",
                    },
                ]
            },
        },
        {"metadata": {"name": "cpu-only"}, "spec": {}, "status": {}},
    ]
}
PODS = {
    "items": [
        {
            "metadata": {
                "namespace": "ml",
                "name": "a",
                "labels": {"muster.dev/gang": "train"},
                "annotations": {"muster.dev/lease": "t1-x-1"},
            },
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        },
        {
            "metadata": {"namespace": "ml", "name": "b", "labels": {"muster.dev/gang": "train"}},
            "spec": {"schedulingGates": [{"name": "muster.dev/gang"}]},
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "muster.dev/Placed", "status": "False", "message": "needs 16 GPUs (2x8)"}],
            },
        },
        {"metadata": {"namespace": "ml", "name": "other"}, "spec": {}, "status": {"phase": "Running"}},
    ]
}


@pytest.fixture
def ask(tmp_path):
    """Run muster against nobody, beside a kubectl that prints `answer` and ends with `code`."""
    files = admitters.Town(tmp_path).files("operator")
    folder = tmp_path / "bin"
    folder.mkdir()

    async def run(*arguments, answer="", code=0, error="", has_kubectl=True):
        if has_kubectl:
            (tmp_path / "answer").write_text(answer)
            kubectl = folder / "kubectl"
            kubectl.write_text(
                f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\ncat {tmp_path}/answer\necho '{error}' >&2\nexit {code}\n"
            )
            kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}" if has_kubectl else str(folder),
            "MUSTER_ADMITTER_ADDRESS": NOBODY,
            "MUSTER_ADMITTER_CA": str(files.ca),
            "MUSTER_ADMITTER_CERTIFICATE": str(files.certificate),
            "MUSTER_ADMITTER_KEY": str(files.key),
            "MUSTER_ADMITTER_TIMEOUT_SECONDS": "2",
        }
        process = await asyncio.create_subprocess_exec(
            MUSTER, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    run.asked = lambda: (tmp_path / "asked").read_text().split()
    return run


async def test_status_shows_what_stands_on_the_nodes(ask):
    code, out, err = await ask("status", answer=json.dumps(NODES))
    assert code == 1
    assert f"no answer from {NOBODY}" in err
    lines = out.splitlines()
    assert lines[0] == "the admitter is away; this is what it last wrote on 1 nodes"
    assert lines[2].split() == [
        "n1",
        "OVER",
        "GPUHealthy",
        "False",
        "GpuLost",
        "2026-12-01T10:00:00Z",
        "GPU-3",
        "lost",
        "GpuLost",
    ]
    assert ask.asked()[:4] == ["get", "nodes", "--output", "json"]


async def test_status_in_json_says_where_it_comes_from(ask):
    code, out, _ = await ask("status", "--json", answer=json.dumps(NODES))
    assert code == 1
    content = json.loads(out)
    assert (content["source"], [node["node"] for node in content["nodes"]]) == ("nodes", ["n1"])


async def test_why_says_how_the_pods_of_a_gang_stand(ask):
    code, out, _ = await ask("why", "gang/ml/train", answer=json.dumps(PODS))
    assert code == 1
    assert out.splitlines() == [
        "the admitter is away; this is what it last wrote on 2 pods",
        "  ml/a: Running on n1, lease t1-x-1",
        "  ml/b: held by muster.dev/gang, needs 16 GPUs (2x8)",
        "pods held by muster.dev/gang start when the admitter is back, or by `muster bypass gang/ml/train`",
    ]
    assert ask.asked()[:4] == ["get", "pods", "--namespace", "ml"]


async def test_why_says_how_one_pod_stands(ask):
    code, out, _ = await ask("why", "pod/ml/other", answer=json.dumps(PODS))
    assert code == 1
    assert out.splitlines()[1:] == ["  ml/other: Running"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"has_kubectl": False}, "kubectl is not in the PATH"),
        ({"code": 1, "error": "connection refused"}, "connection refused"),
        ({"answer": "garbage"}, "kubectl answered with something else"),
        ({"answer": "{}"}, "kubectl answered with something else"),
    ],
)
async def test_who_has_no_answer_either_is_named(ask, how, said):
    code, out, err = await ask("status", **how)
    assert (code, out) == (3, "")
    assert said in err.splitlines()[-1]


async def test_a_gang_without_pods_has_no_answer(ask):
    code, _, err = await ask("why", "gang/ml/none", answer='{"items": []}')
    assert code == 3
    assert "no pod is, or belongs to, gang/ml/none" in err
