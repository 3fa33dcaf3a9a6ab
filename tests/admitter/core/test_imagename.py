"""Names of images, as the runtime writes them out."""

import pytest

from admitter.core import imagename

DIGEST = "sha256:" + 64 * "a"
NAMES = {
    "ubuntu": "docker.io/library/ubuntu:latest",
    "team/train:v1": "docker.io/team/train:v1",
    "localhost/x": "localhost/x:latest",
    "registry:5000/ml/cuda:v1": "registry:5000/ml/cuda:v1",
    f"nvcr.io/nvidia/pytorch@{DIGEST}": f"nvcr.io/nvidia/pytorch@{DIGEST}",
    f"nvcr.io/nvidia/pytorch:25.10@{DIGEST}": f"nvcr.io/nvidia/pytorch@{DIGEST}",
    "": "",
    "a b": "",
    "UPPER/case": "",
    "x@sha256:short": "",
    "x:": "",
    "x:!": "",
    "r.example/" + 600 * "a": "",
}


@pytest.mark.parametrize("text", NAMES)
def test_full(text):
    assert imagename.full(text) == NAMES[text]


def test_parts():
    name = imagename.full("registry:5000/ml/cuda:v1")
    assert (imagename.host(name), imagename.repository(name)) == ("registry:5000", "registry:5000/ml/cuda")
    assert imagename.digest(imagename.at(name, DIGEST)) == DIGEST
    assert imagename.repository(imagename.at(name, DIGEST)) == "registry:5000/ml/cuda"
