"""No request leaves with a sub-message unset: that killed a containerd (images.md section 4, rule 1)."""

import inspect

import pytest
from google.protobuf import any_pb2, symbol_database
from google.protobuf import message as protobuf
from hypothesis import given
from hypothesis import strategies as st

from agent.model.warm import Descriptor, Platform
from agent.warmer import requests
from muster.pb.containerd.v1 import images_pb2, types_pb2

TEXT = st.text(max_size=5)
LABELS = st.dictionaries(TEXT, TEXT, max_size=2)
DESCRIPTORS = st.builds(Descriptor, digest=TEXT, size=st.integers(0, 2**62), kind=TEXT)
BY_NAME = {
    "blob": DESCRIPTORS,
    "layer": DESCRIPTORS,
    "labels": LABELS,
    "offset": st.integers(0, 2**62),
    "data": st.binary(max_size=5),
    "mounts": st.lists(st.builds(types_pb2.Mount, type=TEXT), max_size=2),
    "current": st.builds(images_pb2.Image, name=TEXT),
    "platform": st.builds(Platform, os=TEXT, architecture=TEXT, variant=TEXT),
    "message": st.builds(types_pb2.Mount, type=TEXT),
    "credentials": st.one_of(st.none(), st.tuples(TEXT, TEXT)),
}
NOT_BUILDERS = {"record"}
BUILDERS = [
    function
    for name, function in inspect.getmembers(requests, inspect.isfunction)
    if function.__module__ == requests.__name__ and name not in NOT_BUILDERS
]


def unset(message):
    """Yield the fields of a message, at any depth, that hold a message and are not set; what is packed is unpacked."""
    if isinstance(message, any_pb2.Any):
        cls = symbol_database.Default().GetSymbol(message.type_url)
        yield from unset(cls.FromString(message.value))
        return
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            for item in getattr(message, field.name):
                yield from unset(item)
        elif message.HasField(field.name):
            yield from unset(getattr(message, field.name))
        elif field.full_name not in requests.NILABLE:
            yield field.full_name


@pytest.mark.parametrize("build", BUILDERS, ids=lambda function: function.__name__)
@given(data=st.data())
def test_no_builder_leaves_a_message_unset(build, data):
    arguments = {name: data.draw(BY_NAME.get(name, TEXT), name) for name in inspect.signature(build).parameters}
    message = build(**arguments)
    assert isinstance(message, protobuf.Message)
    assert list(unset(message)) == []


def test_the_walk_looks_into_what_is_packed():
    assert list(unset(requests.packed(images_pb2.Image(name="x")))) == [
        "containerd.services.images.v1.Image.target",
        "containerd.services.images.v1.Image.created_at",
        "containerd.services.images.v1.Image.updated_at",
    ]


def test_the_walk_finds_what_it_looks_for():
    assert list(unset(images_pb2.UpdateImageRequest(image=images_pb2.Image(name="x")))) == [
        "containerd.services.images.v1.Image.target",
        "containerd.services.images.v1.Image.created_at",
        "containerd.services.images.v1.Image.updated_at",
        "containerd.services.images.v1.UpdateImageRequest.update_mask",
    ]
