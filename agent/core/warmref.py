"""Read a name of an image as the container runtime does, strictly.

In: text of an operator or an admitter. Out: a Reference in full, or why it is refused.

Invariant: what is accepted names exactly one thing. No tag would mean `latest`, which moves; a tag beside a digest says
two things, and the runtime would keep only one.
"""

import re

from agent.model.warm import Reason, Reference, Refused

_DEFAULT_HOST = "docker.io"
_HOST = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST = 255
"""Characters of host and repository: the registries' bound."""


def parse(text: str) -> Reference | Refused:
    """Return the reference.

    >>> str(parse("ubuntu:24.04"))
    'docker.io/library/ubuntu:24.04'
    >>> parse("registry:5000/ml/cuda").detail
    "'registry:5000/ml/cuda' has no tag and no digest: `latest` moves, so say which"
    """
    rest, at, digest = text.partition("@")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    name = head + slash + last
    if at and not _DIGEST.fullmatch(digest):
        return _refused(text, "has a digest that is not sha256: and 64 hexadecimal digits")
    if colon and not _TAG.fullmatch(tag):
        return _refused(text, "has a tag that is none")
    if at and colon:
        return _refused(text, "has a tag and a digest: leave the tag out, the digest is what counts")
    if not at and not colon:
        return _refused(text, "has no tag and no digest: `latest` moves, so say which")
    host, repository = _split(name)
    if not _HOST.fullmatch(host) or not _REPOSITORY.fullmatch(repository) or len(host) + len(repository) > _MOST:
        return _refused(text, "is no name of an image")
    return Reference(host=host, repository=repository, tag=tag, digest=digest)


def _split(name: str) -> tuple[str, str]:
    """Return host and repository; a first part without dot, port or `localhost` is the default host's."""
    first, slash, rest = name.partition("/")
    if slash and (re.search(r"[.:\[]", first) or first == "localhost"):
        return first, rest
    return _DEFAULT_HOST, name if slash else f"library/{name}"


def _refused(text: str, problem: str) -> Refused:
    return Refused(reason=Reason.BAD_REFERENCE, detail=f"{text[:200]!r} {problem}")
