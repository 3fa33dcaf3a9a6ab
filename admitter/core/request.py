"""Turn a client's OpenGang and Member messages into values, or into every problem they have.

Invariant: a Gang that leaves here is valid in every field; a refusal names each field by its path in the message.

Why not in the service: what a valid request is belongs to the contract, and is the same for every way in.
"""

import re
from collections.abc import Collection

from admitter.core import imagename
from admitter.model.content import Content
from admitter.model.gang import (
    Gang,
    GpuRequest,
    Level,
    Member,
    MigRequest,
    PodClass,
    Podset,
    Request,
    ResourceRequest,
    TopologyWish,
)
from muster.pb.muster.v1 import admission_pb2

MAX_PODS = 100_000
"""design.md section 6: `muster.dev/gang-size`."""
MAX_PODSETS = 64
MAX_IMAGES = 32
"""Of one podset."""
MAX_UNITS_PER_POD = 4096
"""Far above any node; keeps sums within the wire's int64."""

MAX_RUNTIME_SECONDS = 365 * 86_400
"""Further off nothing is planned, and what is said of the queue fits in a message."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]{0,126}[A-Za-z0-9])?")


class InvalidRequest(ValueError):
    """The message does not fit. `problems` holds one `path: problem` each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def is_extended(resource: str) -> bool:
    """Return whether a resource is one that a device plugin offers: not cpu, memory, pods, storage, huge pages or volumes.

    >>> is_extended("example.com/npu"), is_extended("memory"), is_extended("hugepages-2Mi"), is_extended("kubernetes.io/x")
    (True, False, False, False)
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not f".{domain}".endswith(".kubernetes.io")


def gang(message: admission_pb2.OpenGang, levels: Collection[str] | None = None) -> Gang:
    """Return the gang, or raise InvalidRequest with every problem.

    `levels` are the network's, as configured; None: the caller does not know them, and the queue says so of a wrong one.
    """
    problems: list[str] = []
    _match(problems, "open.namespace", message.namespace, _LABEL, "a namespace name")
    _match(problems, "open.gang", message.gang, _NAME, "a Kubernetes name")
    _match(problems, "open.request_id", message.request_id, _REQUEST_ID, "1 to 128 letters, digits and -_.:")
    if not 1 <= len(message.podsets) <= MAX_PODSETS:
        problems.append(f"open.podsets: has {len(message.podsets)} entries, not 1..{MAX_PODSETS}")
        raise InvalidRequest(tuple(problems))
    podsets = tuple(
        _podset(problems, f"open.podsets[{index}]", entry, levels) for index, entry in enumerate(message.podsets)
    )
    names = [podset.name or "main" for podset in message.podsets]
    problems += [
        f"open.podsets[{index}].name: {name!r} is used before"
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    total = sum(podset.count for podset in message.podsets)
    if total > MAX_PODS:
        problems.append(f"open.podsets: {total} pods in all, not 1..{MAX_PODS}")
    if problems:
        raise InvalidRequest(tuple(problems))
    return Gang(
        namespace=message.namespace,
        name=message.gang,
        request_id=message.request_id,
        priority=message.priority,
        podsets=tuple(podset for podset in podsets if podset is not None),
    )


def member(message: admission_pb2.Member, of: Gang) -> Member:
    """Return the member of a gang, or raise InvalidRequest with every problem."""
    problems: list[str] = []
    if message.podset not in {podset.name for podset in of.podsets}:
        problems.append(f"member.podset: {message.podset!r} is no podset of {of.full_name}")
    _match(problems, "member.uid", message.uid, _REQUEST_ID, "a pod UID")
    _match(problems, "member.node", message.node, _NAME, "a node name")
    if problems:
        raise InvalidRequest(tuple(problems))
    return Member(podset=message.podset, uid=message.uid, node=message.node)


def _podset(
    problems: list[str], path: str, message: admission_pb2.Podset, levels: Collection[str] | None
) -> Podset | None:
    known = len(problems)
    name = message.name or "main"
    _match(problems, f"{path}.name", name, _LABEL, "a podset name")
    if not 1 <= message.count <= MAX_PODS:
        problems.append(f"{path}.count: {message.count} is not in 1..{MAX_PODS}")
    request = _request(problems, path, message)
    topology = _topology(problems, f"{path}.topology", message.topology, levels)
    pod_class = _class(problems, f"{path}.class", getattr(message, "class"))
    runtime = None
    if message.HasField("max_runtime"):
        runtime = message.max_runtime.seconds + message.max_runtime.nanos / 1e9
        if runtime <= 0:
            problems.append(f"{path}.max_runtime: {runtime:g} s is not above 0")
        elif runtime > MAX_RUNTIME_SECONDS:
            problems.append(f"{path}.max_runtime: {runtime:g} s is more than a year ({MAX_RUNTIME_SECONDS} s)")
    content = _content(problems, path, message)
    if len(problems) > known or request is None or pod_class is None:
        return None
    return Podset(
        name=name,
        count=message.count,
        request=request,
        topology=topology,
        pod_class=pod_class,
        max_runtime_seconds=runtime,
        content=content,
    )


def _content(problems: list[str], path: str, message: admission_pb2.Podset) -> Content:
    if len(message.images) > MAX_IMAGES:
        problems.append(f"{path}.images: has {len(message.images)} entries, at most {MAX_IMAGES}")
    problems += [
        f"{path}.images[{index}]: {image[:64]!r} is no image's name"
        for index, image in enumerate(message.images[:MAX_IMAGES])
        if not imagename.full(image)
    ]
    if message.runtime_handler:
        _match(problems, f"{path}.runtime_handler", message.runtime_handler, _LABEL, "a runtime handler")
    return Content(images=tuple(sorted(set(message.images))), handler=message.runtime_handler)


def _request(problems: list[str], path: str, message: admission_pb2.Podset) -> Request | None:
    match message.WhichOneof("request"):
        case "gpus":
            _units(problems, f"{path}.gpus", message.gpus)
            return GpuRequest(gpus=message.gpus)
        case "mig":
            if not 1 <= message.mig.compute_slices <= 8:
                problems.append(f"{path}.mig.compute_slices: {message.mig.compute_slices} is not in 1..8")
            if message.mig.min_memory_bytes < 0:
                problems.append(f"{path}.mig.min_memory_bytes: {message.mig.min_memory_bytes} is below 0")
            return MigRequest(compute_slices=message.mig.compute_slices, min_memory_bytes=message.mig.min_memory_bytes)
        case "resource":
            _extended(problems, f"{path}.resource.name", message.resource.name)
            _units(problems, f"{path}.resource.quantity", message.resource.quantity)
            return ResourceRequest(name=message.resource.name, quantity=message.resource.quantity)
    problems.append(f"{path}: one of gpus, mig and resource is required")
    return None


def _topology(problems: list[str], path: str, text: str, levels: Collection[str] | None) -> TopologyWish | None:
    if not text:
        return None
    kind, _, level = text.partition("=")
    known = [*(member.value for member in Level), *(levels or ())]
    is_known = bool(_LABEL.fullmatch(level)) if levels is None else level in known
    if kind not in ("required", "preferred") or not is_known:
        problems.append(
            f"{path}: {text[:128]!r} is not required=LEVEL or preferred=LEVEL with LEVEL of {', '.join(known)}"
        )
        return None
    return TopologyWish(level=level, required=kind == "required")


def _class(problems: list[str], path: str, text: str) -> PodClass | None:
    try:
        return PodClass(text or PodClass.GANG)
    except ValueError:
        problems.append(f"{path}: {text!r} is none of {', '.join(member.value for member in PodClass)}")
        return None


def _units(problems: list[str], path: str, units: int) -> None:
    if not 1 <= units <= MAX_UNITS_PER_POD:
        problems.append(f"{path}: {units} is not in 1..{MAX_UNITS_PER_POD}")


def _extended(problems: list[str], path: str, name: str) -> None:
    known = len(problems)
    _match(problems, path, name, _RESOURCE, "a resource name")
    if len(problems) == known and not is_extended(name):
        # Every pod takes cpu, memory and a slot beside its devices: no lease is held on them.
        problems.append(f"{path}: {name!r} is no extended resource, DOMAIN/NAME")


def _match(problems: list[str], path: str, text: str, pattern: "re.Pattern[str]", what: str) -> None:
    if not pattern.fullmatch(text):
        problems.append(f"{path}: {text[:64]!r} is not {what}" if text else f"{path}: is required")
