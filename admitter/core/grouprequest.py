"""What a group asks of the queue: the Gang for those of its members that are still held.

Input: a Group, the request's id, how long its owner says it runs. Output: the Gang and each member's podset, or every
problem, each with the pod and the key it stands on.

Invariant: what is valid is decided by request.py, for pods as for every other way in. Pods that ask for no device are in no
podset: they wait for nothing and are let go with the gang. Members that run already are not asked for: they have their
units, and the node's agent counts them.

Why podsets are split by shape: two pods of one podset may ask for different things, and a podset is like pods. The parts
get the podset's name with a number. A pin of ours is no part of the shape: under a new leader a gang of which some are let go must ask
what it asked, or its lease is not its own.

Why the reading stops at one shape more than a request may have: whoever may make pods may make as many unlike ones as he
likes, and this is asked at every look.
"""

import dataclasses
import re
from collections.abc import Hashable, Mapping, Sequence

from admitter.core import request, signature
from admitter.model.cluster import Constraints, KubePod, NodeTerm
from admitter.model.content import Content
from admitter.model.gang import Gang
from admitter.model.group import Group, GroupMember
from muster.model import codec, labels
from muster.pb.muster.v1 import admission_pb2

VENDOR = "nvidia.com/"
HOSTNAME = "kubernetes.io/hostname"
MAX_RESOURCES = 64
"""Names in one pod's requests; no node offers as many, and each is looked up for each kind of pod in each pass."""
_NODE_NAME = "metadata.name"
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")
_PATH = re.compile(r"open\.podsets\[(\d+)\](?:\.(\w+))?")
_KEYS = {
    "name": labels.PODSET.full,
    "topology": labels.TOPOLOGY.full,
    "class": labels.CLASS.full,
    "max_runtime": labels.MAX_RUNTIME.full,
    "count": labels.GANG_SIZE.full,
}
"""Which of a pod's keys a field of the request comes from."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that can be put to the queue."""

    gang: Gang
    podset_of: Mapping[str, str]
    """UID -> podset of the gang, for every held member that needs a device."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What makes two pods of one podset alike."""

    device: str
    units: int
    topology: str
    pod_class: str
    max_runtime: str
    beside: tuple[tuple[str, int], ...]
    where: Hashable
    """What is equal for constraints that are equal."""
    constraints: Constraints = dataclasses.field(compare=False, repr=False)

    @property
    def order(self) -> tuple[object, ...]:
        """Return what sorts shapes for a name each; the same pods give the same names."""
        return (self.device, -self.units, self.topology, self.pod_class, self.max_runtime, self.beside)


def is_device(resource: str, extra: frozenset[str] = frozenset()) -> bool:
    """Return whether a lease is held on this resource.

    >>> is_device("nvidia.com/gpu"), is_device("cpu"), is_device("example.com/gpu", frozenset({"example.com/gpu"}))
    (True, False, True)
    """
    return resource.startswith(VENDOR) or resource in extra


def ask(
    group: Group,
    held: Sequence[GroupMember],
    request_id: str,
    *,
    owner_runtime: str = "",
    devices: frozenset[str] = frozenset(),
    handlers: Mapping[str, str] = codec.EMPTY,
) -> Asked | tuple[str, ...]:
    """Return the request for the held members, or what is wrong with it, sorted; `handlers` by RuntimeClass."""
    shapes, problems = _by_shape(held, owner_runtime, devices)
    named = _named(shapes)
    message = _message(group, named, request_id, problems)
    try:
        gang = request.gang(message) if named else _nothing(group, request_id)
    except request.InvalidRequest as error:
        first = [pods[0].name for _, _, pods in named]
        problems += [_of_pod(problem, first) for problem in error.problems]
    if problems:
        return tuple(sorted(set(problems)))
    podsets = tuple(
        dataclasses.replace(
            podset,
            requests=dict(shape.beside),
            constraints=shape.constraints,
            content=_content(pods, handlers),
        )
        for podset, (_, shape, pods) in zip(gang.podsets, named, strict=True)
    )
    return Asked(
        gang=dataclasses.replace(gang, podsets=podsets),
        podset_of={pod.uid: name for name, _, pods in named for pod in pods},
    )


def _by_shape(
    held: Sequence[GroupMember], owner_runtime: str, devices: frozenset[str]
) -> tuple[dict[str, dict[Shape, list[KubePod]]], list[str]]:
    """Return the pods of each podset by what they ask for, and what is wrong with those that cannot be read."""
    problems = []
    shapes: dict[str, dict[Shape, list[KubePod]]] = {}
    found = 0
    for member in held:
        shape = _shape(member.pod, owner_runtime, devices)
        if isinstance(shape, str):
            problems.append(f"pod {member.pod.name}: {shape}")
        elif shape is not None:
            same = shapes.setdefault(member.podset, {})
            found += shape not in same
            same.setdefault(shape, []).append(member.pod)
        if found > request.MAX_PODSETS:
            break
    return shapes, problems


def _content(pods: Sequence[KubePod], handlers: Mapping[str, str]) -> Content:
    """Return what the pods of a podset start from, all of it."""
    images = {image for pod in pods for image in (*pod.images, *pod.init_images)} - {""}
    pulled = {image for pod in pods for image in {*pod.images, *pod.init_images} - set(pod.unpulled_images)}
    secrets = {name for pod in pods for name in pod.pull_secrets} - {""}
    name = pods[0].runtime_class
    return Content(
        images=tuple(sorted(images)[: request.MAX_IMAGES]),
        handler=handlers.get(name) if name else "",
        pull_secrets=tuple(sorted(secrets)),
        unpulled=tuple(sorted(images - pulled)),
    )


def max_runtime_seconds(text: str) -> float | None:
    """Return a duration such as `4h30m`; None: it is none.

    >>> max_runtime_seconds("4h30m"), max_runtime_seconds("90s"), max_runtime_seconds("0s"), max_runtime_seconds("4")
    (16200.0, 90.0, None, None)
    """
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds) or None


def _shape(pod: KubePod, owner_runtime: str, devices: frozenset[str]) -> Shape | str | None:
    """Return what a pod asks for; None: no device; or what is wrong with it."""
    asked = {name: units for name, units in pod.requests.items() if is_device(name, devices) and units}
    if not asked:
        return None
    if len(asked) > 1:
        return f"asks for {' and '.join(sorted(asked)[:4])}: a lease is held on one of them only"
    ((device, units),) = asked.items()
    if len(pod.requests) > MAX_RESOURCES:
        return f"asks for {len(pod.requests)} resources, not 1..{MAX_RESOURCES}"
    runtime = pod.annotations.get(labels.MAX_RUNTIME.full, owner_runtime)
    if runtime and max_runtime_seconds(runtime) is None:
        return f"{labels.MAX_RUNTIME.full}: {runtime[:32]!r} is no duration such as 4h30m"
    constraints = _unpinned(pod)
    return Shape(
        device=device,
        units=units,
        topology=pod.annotations.get(labels.TOPOLOGY.full, ""),
        pod_class=pod.labels.get(labels.CLASS.full, ""),
        max_runtime=runtime,
        beside=tuple(sorted((name, each) for name, each in pod.requests.items() if name != device)),
        where=signature.where(constraints),
        constraints=constraints,
    )


def _unpinned(pod: KubePod) -> Constraints:
    """Return where a pod might go before we pinned it: a gang that is half let go has the shape that it asked for."""
    mine = pod.constraints
    if labels.LEASE.full not in pod.annotations:
        return mine
    terms = tuple(map(_before_pin, mine.required))
    if mine.required and all(before != term for before, term in zip(terms, mine.required, strict=True)):
        return dataclasses.replace(mine, required=() if all(term == NodeTerm() for term in terms) else terms)
    selector = {key: value for key, value in mine.node_selector.items() if key != HOSTNAME}
    return dataclasses.replace(mine, node_selector=codec.freeze(selector))


def _before_pin(term: NodeTerm) -> NodeTerm:
    """Return a term without what a pin adds at its end (publish/pods.py)."""
    if term.fields and term.fields[-1].key == _NODE_NAME:
        return dataclasses.replace(term, fields=term.fields[:-1])
    if term.labels and term.labels[-1].key == HOSTNAME:
        return dataclasses.replace(term, labels=term.labels[:-1])
    return term


def _named(
    shapes: Mapping[str, Mapping[Shape, list[KubePod]]],
) -> list[tuple[str, Shape, list[KubePod]]]:
    """Give every shape a podset's name: the first of a podset keeps it."""
    named = []
    for podset in sorted(shapes):
        ordered = sorted(shapes[podset].items(), key=lambda each: (each[0].order, min(pod.name for pod in each[1])))
        for place, (shape, pods) in enumerate(ordered):
            named.append((f"{podset}-{place + 1}" if place else podset, shape, pods))
    return named


def _message(
    group: Group, named: Sequence[tuple[str, Shape, list[KubePod]]], request_id: str, problems: list[str]
) -> admission_pb2.OpenGang:
    message = admission_pb2.OpenGang(namespace=group.namespace, gang=group.name, request_id=request_id)
    priorities = {pod.priority for _, _, pods in named for pod in pods}
    if len(priorities) > 1:
        problems.append(f"its pods have priorities {' and '.join(map(str, sorted(priorities)[:4]))}")
    message.priority = max(priorities, default=0)
    for name, shape, pods in named:
        podset = message.podsets.add(name=name, count=len(pods), topology=shape.topology, **{"class": shape.pod_class})
        if shape.device == f"{VENDOR}gpu":
            podset.gpus = shape.units
        else:
            podset.resource.name, podset.resource.quantity = shape.device, shape.units
        if shape.max_runtime:
            podset.max_runtime.FromMilliseconds(round((max_runtime_seconds(shape.max_runtime) or 0) * 1000))
    return message


def _nothing(group: Group, request_id: str) -> Gang:
    return Gang(namespace=group.namespace, name=group.name, request_id=request_id, podsets=())


def _of_pod(problem: str, first: Sequence[str]) -> str:
    """Say a problem of the message in the words of the pod that it came from.

    >>> _of_pod("open.podsets[0].topology: 'x' is not required=LEVEL", ["trainer-0"])
    "pod trainer-0: muster.dev/topology: 'x' is not required=LEVEL"
    """
    match = _PATH.match(problem)
    if match is None:
        return problem.removeprefix("open.")
    key = _KEYS.get(match[2] or "", match[2] or "request")
    return f"pod {first[int(match[1])]}: {key}{problem[match.end() :]}"
