"""A redacted capture keeps every join and no name."""

import io
import json
import pathlib

import pytest

from agent import replay
from agent.model import planes
from agent.model.policy import Policy
from agent.publish import capture, redact
from agent.sources import capturefile
from muster.model import jsonform

EXAMPLES = sorted(pathlib.Path("tests/contracts/examples").glob("*.jsonl"))
CAPTURES = sorted(pathlib.Path("tests/captures").glob("*.jsonl"))

UID = "7c1c2f7e-1234-4abc-9def-0123456789ab"
GPU = "GPU-5a6f0c1e-aaaa-bbbb-cccc-0123456789ab"
LINE = {
    "schema": planes.SCHEMA,
    "node": "secret-node",
    "taken_at": "2026-12-01T10:00:00Z",
    "boot": {"id": "0d9f2a34-0000-1111-2222-333344445555", "at": "2026-12-01T09:00:00Z"},
    "nvml": {
        "devices": [
            {
                "uuid": GPU,
                "processes": [
                    {"pid": 7, "used_bytes": 1, "cgroup": f"/kubepods/pod{UID.replace('-', '_')}.slice/cri-{'ab' * 32}"}
                ],
            }
        ]
    },
    "kernel_log": [{"at": "2026-12-01T09:30:00Z", "text": f"secret-node kernel: pod secret-pod {GPU} fell off"}],
    "kubelet": {
        "allocatable": [{"resource": "nvidia.com/gpu", "ids": [f"{GPU}::0"]}],
        "pods": [
            {
                "namespace": "gpu",
                "name": "secret-pod",
                "containers": [{"name": "main", "devices": [{"resource": "nvidia.com/gpu", "ids": [GPU]}]}],
            }
        ],
        "checkpoint": {"registered": {"nvidia.com/gpu": [GPU]}, "pods": [{"uid": UID, "resource": "nvidia.com/gpu", "ids": [GPU]}]},
    },
    "node_object": {
        "capacity": {"nvidia.com/gpu": 8},
        "allocatable": {"nvidia.com/gpu": 8},
        "labels": {"kubernetes.io/hostname": "secret-node", "nvidia.com/mig.config": "all-disabled", "team": "secret"},
    },
    "pods": [{"namespace": "gpu", "name": "secret-pod", "uid": UID, "phase": "Running", "requests": {"nvidia.com/gpu": 1}}],
    "rejections": [
        {"at": "2026-12-01T09:31:00Z", "pod": "gpu/secret-pod", "reason": "UnexpectedAdmissionError",
         "message": "Pod secret-pod: requested 1, available 0"}
    ],
}  # fmt: skip


def redacted(*lines):
    redactor = redact.Redactor()
    return [redactor.line(line) for line in lines]


def test_no_name_is_left():
    """Neither in fields nor in texts, cgroups and labels."""
    (line,) = redacted(LINE)
    text = json.dumps(line)
    for secret in ("secret", UID, UID.replace("-", "_"), GPU[4:], "0d9f2a34", "ab" * 16):
        assert secret not in text


def test_every_join_holds():
    """List, API server, rejection, checkpoint, process and driver still speak of the same pod and GPU."""
    (line,) = redacted(LINE)
    jsonform.from_json(planes.Observation, line)
    pod, listed = line["pods"][0], line["kubelet"]["pods"][0]
    gpu = line["nvml"]["devices"][0]
    assert (pod["namespace"], pod["name"]) == (listed["namespace"], listed["name"])
    assert line["rejections"][0]["pod"] == f"{pod['namespace']}/{pod['name']}"
    assert line["rejections"][0]["message"] == f"Pod {pod['name']}: requested 1, available 0"
    assert line["kubelet"]["checkpoint"]["pods"][0]["uid"] == pod["uid"]
    assert pod["uid"].replace("-", "_") in gpu["processes"][0]["cgroup"]
    assert listed["containers"][0]["devices"][0]["ids"] == [gpu["uuid"]]
    assert line["kubelet"]["allocatable"][0]["ids"] == [f"{gpu['uuid']}::0"]
    assert gpu["uuid"] in line["kernel_log"][0]["text"]


def test_a_namespace_called_gpu_spoils_no_resource():
    """Names are replaced where names stand."""
    (line,) = redacted(LINE)
    assert line["node_object"]["capacity"] == {"nvidia.com/gpu": 8}
    assert line["node_object"]["labels"] == {"nvidia.com/mig.config": "all-disabled"}


def test_stand_ins_are_the_same_in_every_line():
    """A timeline stays one."""
    first, second = redacted(LINE, LINE)
    assert first == second


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_capture_reads_back_after_redaction(path):
    """What is written is a capture again, with the same shape."""
    out = io.StringIO()
    writer = capture.Writer(out, redacted=True)
    lines = [jsonform.from_json(planes.Observation, json.loads(line)) for line in path.read_text().splitlines()]
    for observation in lines:
        writer.write(observation)
    again = [jsonform.from_json(planes.Observation, json.loads(line)) for line in out.getvalue().splitlines()]
    assert [line.taken_at for line in again] == [line.taken_at for line in lines]
    assert [len(line.nvml.value.devices) for line in again] == [len(line.nvml.value.devices) for line in lines]


def test_a_plain_capture_is_the_observation():
    """Without redaction a line reads back equal."""
    observation = jsonform.from_json(planes.Observation, LINE)
    out = io.StringIO()
    capture.Writer(out, redacted=False).write(observation)
    assert jsonform.from_json(planes.Observation, json.loads(out.getvalue())) == observation


def numbers(report):
    """What a verdict says, without names."""
    return report.verdict, {
        name: (
            resource.verdict,
            resource.admit_strict,
            resource.admit_lenient,
            resource.pick_risk,
            sorted(finding.cause for finding in resource.findings),
        )
        for name, resource in report.resources.items()
    }


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_redacted_capture_gives_the_same_verdict(path):
    """A bug report without names is as good as one with them."""
    text = path.read_text().splitlines()
    plain = capturefile.parse(text)
    secret = capturefile.parse(json.dumps(line) for line in redacted(*map(json.loads, text)))
    assert numbers(replay.last_report(secret, Policy())) == numbers(replay.last_report(plain, Policy()))
