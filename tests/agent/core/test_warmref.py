"""A name means one thing, or is refused."""

import pytest

from agent.core import warmref
from agent.model.warm import Refused

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("nvidia/cuda:12", "docker.io/nvidia/cuda:12"),
        ("localhost/x:1", "localhost/x:1"),
        ("registry:5000/ml/cuda:v1", "registry:5000/ml/cuda:v1"),
        (f"nvcr.io/nvidia/pytorch@{DIGEST}", f"nvcr.io/nvidia/pytorch@{DIGEST}"),
    ],
)
def test_a_name_is_completed_as_the_runtime_does(text, full):
    found = warmref.parse(text)
    assert str(found) == full
    assert warmref.parse(full) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nvcr.io/nvidia/pytorch", "no tag and no digest"),
        (f"nvcr.io/nvidia/pytorch:1@{DIGEST}", "a tag and a digest"),
        ("nvcr.io/nvidia/pytorch@sha256:abc", "a digest that is not"),
        ("nvcr.io/nvidia/pytorch:", "a tag that is none"),
        ("nvcr.io/Nvidia/pytorch:1", "is no name"),
        ("", "no tag and no digest"),
        ("/:x", "is no name"),
        ("host:5000:x", "a tag that is none"),
        ("a" * 300 + ":1", "is no name"),
    ],
)
def test_what_names_nothing_or_two_things_is_refused(text, problem):
    found = warmref.parse(text)
    assert isinstance(found, Refused)
    assert problem in found.detail
