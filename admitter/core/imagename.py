"""An image's name as the container runtime writes it out.

In: what a pod's spec says. Out: host/repository:tag or host/repository@digest, the spelling that nodes report; empty for
what is no name.

Why lenient where the warmer's list is strict: a pod without a tag means `latest`, and runs.
"""

import re

_HOST = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")
_REST = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_LENGTH = 512


def full(text: str) -> str:
    """Return the name in full.

    >>> full("ubuntu"), full("nvcr.io/nvidia/pytorch:25.10"), full("a b")
    ('docker.io/library/ubuntu:latest', 'nvcr.io/nvidia/pytorch:25.10', '')
    """
    rest, at, digest = text.partition("@")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    host, _, repository = (head + slash + last).partition("/")
    if not repository or not ("." in host or ":" in host or host == "localhost"):
        host, repository = "docker.io", head + slash + last
        if "/" not in repository:
            repository = f"library/{repository}"
    is_name = _HOST.fullmatch(host) and _REST.fullmatch(repository) and len(text) <= MAX_LENGTH
    if not is_name or (colon and not _TAG.fullmatch(tag)) or (at and not _DIGEST.fullmatch(digest)):
        return ""
    return f"{host}/{repository}@{digest}" if at else f"{host}/{repository}:{tag or 'latest'}"


def at(name: str, digest: str) -> str:
    """Return the name of the same repository's image of a digest.

    >>> at("registry:5000/ml/cuda:v1", "sha256:ab")
    'registry:5000/ml/cuda@sha256:ab'
    """
    return f"{repository(name)}@{digest}"


def is_digest(text: str) -> bool:
    """Return whether a text is a digest."""
    return bool(_DIGEST.fullmatch(text))


def repository(name: str) -> str:
    """Return host and repository of a full name."""
    rest = name.partition("@")[0]
    return rest if "@" in name else rest.rpartition(":")[0]


def host(name: str) -> str:
    """Return the registry of a full name."""
    return name.partition("/")[0]


def digest(name: str) -> str:
    """Return the digest in a full name; empty: it has a tag."""
    return name.partition("@")[2]
