"""Every request to containerd and CRI, built in one place.

Invariant: no singular sub-message of a request is ever left unset. `Images.Update` without `image.target` killed the whole
of containerd 2.3.4 (images.md section 4, rule 1); NILABLE names the fields where unset has a meaning of its own, and a
property test walks every builder's result for the rest.

Not here: calling (client.py).
"""

from collections.abc import Iterable, Mapping

from google.protobuf import any_pb2
from google.protobuf import message as protobuf

from agent.model.warm import Descriptor, ImageRecord, Platform
from muster.pb.containerd.v1 import (
    content_pb2,
    diff_pb2,
    events_pb2,
    images_pb2,
    leases_pb2,
    snapshots_pb2,
    streaming_pb2,
    transfer_pb2,
    transfertypes_pb2,
    types_pb2,
)
from muster.pb.cri.v1 import cri_pb2

NILABLE: Mapping[str, str] = {
    "runtime.v1.PullImageRequest.auth": "unset is anonymous: the kubelet sends it so",
}
"""Field -> why it may be unset."""

Credentials = tuple[str, str]


def descriptor(blob: Descriptor) -> types_pb2.Descriptor:
    """Return how containerd spells a blob."""
    return types_pb2.Descriptor(media_type=blob.kind, digest=blob.digest, size=blob.size)


# -- images


def list_images() -> images_pb2.ListImagesRequest:
    """Ask for all image records."""
    return images_pb2.ListImagesRequest()


def update_label(current: images_pb2.Image, key: str, value: str) -> images_pb2.UpdateImageRequest:
    """Return the change of one label; the image is the whole one that was read."""
    request = images_pb2.UpdateImageRequest(image=current)
    request.image.target.SetInParent()
    request.image.created_at.SetInParent()
    request.image.updated_at.SetInParent()
    request.image.labels[key] = value
    request.update_mask.paths.append(f"labels.{key}")
    return request


# -- content


def list_content() -> content_pb2.ListContentRequest:
    """Ask for all blobs."""
    return content_pb2.ListContentRequest()


def read_content(digest: str) -> content_pb2.ReadContentRequest:
    """Ask for a blob whole."""
    return content_pb2.ReadContentRequest(digest=digest)


def list_statuses() -> content_pb2.ListStatusesRequest:
    """Ask for all ingests."""
    return content_pb2.ListStatusesRequest()


def write_stat(ref: str, blob: Descriptor) -> content_pb2.WriteContentRequest:
    """Open an ingest and ask how far it is."""
    return content_pb2.WriteContentRequest(action=content_pb2.STAT, ref=ref, total=blob.size, expected=blob.digest)


def write_data(ref: str, offset: int, data: bytes) -> content_pb2.WriteContentRequest:
    """Write into an ingest."""
    return content_pb2.WriteContentRequest(action=content_pb2.WRITE, ref=ref, offset=offset, data=data)


def write_commit(ref: str, blob: Descriptor, labels: Mapping[str, str]) -> content_pb2.WriteContentRequest:
    """Make an ingest a blob."""
    return content_pb2.WriteContentRequest(
        action=content_pb2.COMMIT, ref=ref, total=blob.size, offset=blob.size, expected=blob.digest, labels=labels
    )


def abort_write(ref: str) -> content_pb2.AbortRequest:
    """Throw an ingest away."""
    return content_pb2.AbortRequest(ref=ref)


# -- snapshots


def list_snapshots(snapshotter: str) -> snapshots_pb2.ListSnapshotsRequest:
    """Ask for a snapshotter's snapshots."""
    return snapshots_pb2.ListSnapshotsRequest(snapshotter=snapshotter)


def prepare_snapshot(
    snapshotter: str, key: str, parent: str, labels: Mapping[str, str]
) -> snapshots_pb2.PrepareSnapshotRequest:
    """Begin a snapshot."""
    return snapshots_pb2.PrepareSnapshotRequest(snapshotter=snapshotter, key=key, parent=parent, labels=labels)


def view_snapshot(snapshotter: str, key: str, parent: str) -> snapshots_pb2.ViewSnapshotRequest:
    """Look at a snapshot."""
    return snapshots_pb2.ViewSnapshotRequest(snapshotter=snapshotter, key=key, parent=parent)


def commit_snapshot(snapshotter: str, key: str, name: str) -> snapshots_pb2.CommitSnapshotRequest:
    """Make a snapshot a committed one."""
    return snapshots_pb2.CommitSnapshotRequest(snapshotter=snapshotter, key=key, name=name)


def remove_snapshot(snapshotter: str, key: str) -> snapshots_pb2.RemoveSnapshotRequest:
    """Remove a snapshot."""
    return snapshots_pb2.RemoveSnapshotRequest(snapshotter=snapshotter, key=key)


def apply_diff(layer: Descriptor, mounts: Iterable[types_pb2.Mount]) -> diff_pb2.ApplyRequest:
    """Unpack a layer."""
    return diff_pb2.ApplyRequest(diff=descriptor(layer), mounts=mounts)


# -- leases


def create_lease(name: str, labels: Mapping[str, str]) -> leases_pb2.CreateRequest:
    """Make a lease."""
    return leases_pb2.CreateRequest(id=name, labels=labels)


def delete_lease(name: str) -> leases_pb2.DeleteRequest:
    """Delete a lease and collect what it held before the answer."""
    return leases_pb2.DeleteRequest(id=name, sync=True)


def list_leases() -> leases_pb2.ListRequest:
    """Ask for all leases."""
    return leases_pb2.ListRequest()


def list_resources(name: str) -> leases_pb2.ListResourcesRequest:
    """Ask what a lease holds."""
    return leases_pb2.ListResourcesRequest(id=name)


def add_resource(name: str, kind: str, resource: str) -> leases_pb2.AddResourceRequest:
    """Put something under a lease."""
    return leases_pb2.AddResourceRequest(id=name, resource=leases_pb2.Resource(id=resource, type=kind))


def subscribe(namespace: str) -> events_pb2.SubscribeRequest:
    """Ask for the events of one namespace."""
    return events_pb2.SubscribeRequest(filters=[f"namespace=={namespace}"])


# -- transfer


def packed(message: protobuf.Message) -> any_pb2.Any:
    """Return a message as containerd's Any: its name stands alone, without a host before it (rule 3)."""
    return any_pb2.Any(type_url=message.DESCRIPTOR.full_name, value=message.SerializeToString())


def stream_init(stream: str) -> any_pb2.Any:
    """Name a stream that a transfer will write to."""
    return packed(streaming_pb2.StreamInit(id=stream))


def auth_response(credentials: Credentials | None) -> any_pb2.Any:
    """Answer what a transfer asks for a registry."""
    if credentials is None:
        return packed(transfertypes_pb2.AuthResponse(authType=transfertypes_pb2.NONE))
    user, password = credentials
    answer = transfertypes_pb2.AuthResponse(authType=transfertypes_pb2.CREDENTIALS, username=user, secret=password)
    return packed(answer)


def transfer(
    reference: str,
    *,
    platform: Platform,
    snapshotter: str,
    hosts_folder: str,
    labels: Mapping[str, str],
    stream: str,
    auth_stream: str,
) -> transfer_pb2.TransferRequest:
    """Return a pull into the store, unpacked; without `platforms` it would be of every platform there is (rule 8)."""
    where = types_pb2.Platform(os=platform.os, architecture=platform.architecture, variant=platform.variant)
    source = transfertypes_pb2.OCIRegistry(
        reference=reference,
        resolver=transfertypes_pb2.RegistryResolver(auth_stream=auth_stream, host_dir=hosts_folder),
    )
    destination = transfertypes_pb2.ImageStore(
        name=reference,
        labels=labels,
        platforms=[where],
        unpacks=[transfertypes_pb2.UnpackConfiguration(platform=where, snapshotter=snapshotter)],
    )
    return transfer_pb2.TransferRequest(
        source=packed(source),
        destination=packed(destination),
        options=transfer_pb2.TransferOptions(progress_stream=stream),
    )


# -- CRI


def cri_status() -> cri_pb2.StatusRequest:
    """Ask for the runtime's configuration too."""
    return cri_pb2.StatusRequest(verbose=True)


def cri_image(reference: str) -> cri_pb2.ImageStatusRequest:
    """Ask for one image, as the kubelet does."""
    return cri_pb2.ImageStatusRequest(image=cri_pb2.ImageSpec(image=reference))


def cri_pull(reference: str, credentials: Credentials | None, handler: str) -> cri_pb2.PullImageRequest:
    """Return a pull; the empty sandbox is what makes containerd heed the handler (rule 10)."""
    request = cri_pb2.PullImageRequest(
        image=cri_pb2.ImageSpec(image=reference, user_specified_image=reference, runtime_handler=handler),
        sandbox_config=cri_pb2.PodSandboxConfig(),
    )
    if credentials is not None:
        request.auth.username, request.auth.password = credentials
    return request


def image_fs_info() -> cri_pb2.ImageFsInfoRequest:
    """Ask where images are."""
    return cri_pb2.ImageFsInfoRequest()


def record(image: images_pb2.Image) -> ImageRecord:
    """Return what the model keeps of an image record."""
    return ImageRecord(digest=image.target.digest, labels=dict(image.labels))
