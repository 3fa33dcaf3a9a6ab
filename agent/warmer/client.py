"""containerd and CRI over one unix socket.

In: calls by what they do. Out: values of the model; CallFailed with a Reason.

Invariants: every native call carries the namespace, and the lease where there is one (images.md section 4, rule 2). Calls
that answer at once have a deadline; a pull and an unpack have none, since containerd's work may take minutes: their
caller watches for progress. Messages may have 16 MiB, the kubelet's own limit (rule 4).

Why one channel: a warmer is one client, and an aio channel costs 38 MiB of memory less than a second one.

Not here: what is sent (requests.py) and what an answer means for the plan (core).
"""

import asyncio
import contextlib
import dataclasses
import datetime
import pathlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf import empty_pb2

from agent.core import warmfailure
from agent.model.warm import Descriptor, ImageRecord, Ingest, Lease, Plugin, Reason, Snapshot
from agent.warmer import requests
from muster.pb.containerd.v1 import (
    content_pb2_grpc,
    diff_pb2_grpc,
    events_pb2_grpc,
    eventtypes_pb2,
    images_pb2_grpc,
    introspection_pb2,
    introspection_pb2_grpc,
    leases_pb2_grpc,
    snapshots_pb2,
    snapshots_pb2_grpc,
    streaming_pb2_grpc,
    transfer_pb2_grpc,
    version_pb2_grpc,
)
from muster.pb.cri.v1 import cri_pb2, cri_pb2_grpc

T = TypeVar("T")

NAMESPACE = "k8s.io"
CALL_SECONDS = 15.0
COLLECT_SECONDS = 120.0  # Garbage collection removes files.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024

OWNER_LABEL = "muster.dev/warmer"
DIGEST_LABEL = "muster.dev/digest"
DONE_LABEL = "muster.dev/complete"
EXPIRE_LABEL = "containerd.io/gc.expire"
REMOTE_LABEL = "containerd.io/snapshot/remote"

CONTAINER_CREATED = "/containers/create"
_GONE = {"/images/delete", "/content/delete", "/snapshot/remove"}
_EVENTS: Mapping[str, tuple[Any, str]] = {
    "/images/create": (eventtypes_pb2.ImageCreate, "name"),
    "/images/update": (eventtypes_pb2.ImageUpdate, "name"),
    "/images/delete": (eventtypes_pb2.ImageDelete, "name"),
    "/content/create": (eventtypes_pb2.ContentCreate, "digest"),
    "/content/delete": (eventtypes_pb2.ContentDelete, "digest"),
    CONTAINER_CREATED: (eventtypes_pb2.ContainerCreate, "image"),
    "/snapshot/prepare": (eventtypes_pb2.SnapshotPrepare, "key"),
    "/snapshot/commit": (eventtypes_pb2.SnapshotCommit, "name"),
    "/snapshot/remove": (eventtypes_pb2.SnapshotRemove, "key"),
}


class CallFailed(Exception):
    """containerd refused or could not be reached. The text is bounded and holds no signed address."""

    def __init__(self, reason: Reason, code: str, detail: str) -> None:
        self.reason, self.code, self.detail = reason, code, warmfailure.shown(detail)
        super().__init__(f"{code}: {self.detail}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something came or went: its name, digest or key; of a container, its image's name."""

    topic: str
    subject: str

    @property
    def is_loss(self) -> bool:
        return self.topic in _GONE


class Client:
    """One containerd. Belongs to one event loop."""

    def __init__(self, socket: pathlib.Path, owner: str) -> None:
        self._owner = owner
        options = (
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 2000),
        )
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)
        channel: Any = self._channel
        self._images: Any = images_pb2_grpc.ImagesStub(channel)
        self._content: Any = content_pb2_grpc.ContentStub(channel)
        self._snapshots: Any = snapshots_pb2_grpc.SnapshotsStub(channel)
        self._diff: Any = diff_pb2_grpc.DiffStub(channel)
        self._leases: Any = leases_pb2_grpc.LeasesStub(channel)
        self._events: Any = events_pb2_grpc.EventsStub(channel)
        self._introspection: Any = introspection_pb2_grpc.IntrospectionStub(channel)
        self._version: Any = version_pb2_grpc.VersionStub(channel)
        self._transfer: Any = transfer_pb2_grpc.TransferStub(channel)
        self._streaming: Any = streaming_pb2_grpc.StreamingStub(channel)
        self._cri_runtime: Any = cri_pb2_grpc.RuntimeServiceStub(channel)
        self._cri_images: Any = cri_pb2_grpc.ImageServiceStub(channel)

    async def close(self) -> None:
        """Give the connection back."""
        await self._channel.close(None)

    # -- what there is

    async def version(self) -> str:
        """Return containerd's version."""
        return str((await self._call(self._version.Version, empty_pb2.Empty())).version)

    async def plugins(self) -> tuple[Plugin, ...]:
        """Return the plugins that loaded."""
        answer = await self._call(self._introspection.Plugins, introspection_pb2.PluginsRequest())
        return tuple(
            Plugin(kind=plugin.type, id=plugin.id, root=plugin.exports.get("root", ""))
            for plugin in answer.plugins
            if not plugin.HasField("init_err")
        )

    async def configuration(self) -> str:
        """Return CRI's configuration, as JSON; empty: it does not tell."""
        answer = await self._call(self._cri_runtime.Status, requests.cri_status())
        return str(answer.info.get("config", ""))

    async def list_records(self) -> dict[str, ImageRecord]:
        """Return all image records by name."""
        answer = await self._call(self._images.List, requests.list_images())
        return {image.name: requests.record(image) for image in answer.images}

    async def list_blobs(self) -> dict[str, int]:
        """Return all complete blobs by digest."""
        return {
            info.digest: info.size
            async for answer in self._stream(self._content.List, requests.list_content())
            for info in answer.info
        }

    async def list_ingests(self) -> tuple[Ingest, ...]:
        """Return the blobs that are being written, or were."""
        answer = await self._call(self._content.ListStatuses, requests.list_statuses())
        return tuple(
            Ingest(ref=status.ref, offset=status.offset, updated_at=_utc(status.updated_at))
            for status in answer.statuses
        )

    async def list_snapshots(self, snapshotter: str) -> dict[str, Snapshot]:
        """Return the committed snapshots by name."""
        return {
            info.name: Snapshot(parent=info.parent, is_remote=REMOTE_LABEL in info.labels)
            async for answer in self._stream(self._snapshots.List, requests.list_snapshots(snapshotter))
            for info in answer.info
            if info.kind == snapshots_pb2.COMMITTED
        }

    async def list_leases(self) -> tuple[Lease, ...]:
        """Return our leases, those of others never."""
        answer = await self._call(self._leases.List, requests.list_leases())
        return tuple(_lease(lease) for lease in answer.leases if lease.labels.get(OWNER_LABEL) == self._owner)

    async def read_blob(self, digest: str) -> bytes:
        """Return a small blob."""
        parts = [answer.data async for answer in self._stream(self._content.Read, requests.read_content(digest))]
        return b"".join(parts)

    async def image_folder(self) -> pathlib.Path | None:
        """Return where the runtime says that images are."""
        answer = await self._call(self._cri_images.ImageFsInfo, requests.image_fs_info())
        places = [place.fs_id.mountpoint for place in answer.image_filesystems]
        return pathlib.Path(places[0]) if places else None

    async def cri_image(self, reference: str) -> cri_pb2.Image | None:
        """Return the image as the kubelet sees it; None: it is not there."""
        answer = await self._call(self._cri_images.ImageStatus, requests.cri_image(reference))
        return answer.image if answer.HasField("image") else None

    async def events(self) -> AsyncIterator[Event]:
        """Yield what happens, until containerd goes away (CallFailed)."""
        async for envelope in self._stream(self._events.Subscribe, requests.subscribe(NAMESPACE), deadline=None):
            cls, field = _EVENTS.get(envelope.topic, (None, ""))
            if cls is not None:
                yield Event(topic=envelope.topic, subject=getattr(cls.FromString(envelope.event.value), field))

    # -- what is changed: only ours

    async def create_lease(self, name: str, digest: str, expires_at: datetime.datetime, *, is_done: bool) -> None:
        """Make a lease of ours; one of that name that is there already stays as it is."""
        labels = {
            OWNER_LABEL: self._owner,
            DIGEST_LABEL: digest,
            EXPIRE_LABEL: expires_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            **({DONE_LABEL: "true"} if is_done else {}),
        }
        await self._call_once(self._leases.Create, requests.create_lease(name, labels))

    async def copy_resources(self, source: str, target: str) -> None:
        """Put everything under one lease under another too."""
        answer = await self._call(self._leases.ListResources, requests.list_resources(source))
        for resource in answer.resources:
            await self.add_resource(target, resource.type, resource.id)

    async def add_resource(self, lease: str, kind: str, resource: str) -> None:
        """Put a blob or a snapshot under a lease."""
        await self._call_once(self._leases.AddResource, requests.add_resource(lease, kind, resource))

    async def delete_lease(self, lease: Lease) -> None:
        """Delete a lease of ours: only what list_leases returned is a Lease."""
        with contextlib.suppress(_Absent):
            await self._call(self._leases.Delete, requests.delete_lease(lease.id), deadline=COLLECT_SECONDS)

    async def set_label(self, name: str, key: str, value: str) -> None:
        """Set one label of an image record, the rest of it as it was read."""
        answer = await self._call(self._images.List, requests.list_images())
        for image in answer.images:
            if image.name == name:
                await self._call(self._images.Update, requests.update_label(image, key, value))

    async def pull(self, reference: str, credentials: requests.Credentials | None, *, lease: str, handler: str) -> None:
        """Pull as the kubelet does; cancelling it leaves what has come under the lease."""
        await self._call(
            self._cri_images.PullImage, requests.cri_pull(reference, credentials, handler), lease=lease, deadline=None
        )

    async def prepare(self, snapshotter: str, key: str, parent: str, *, lease: str) -> Any:
        """Begin a snapshot; return its mounts."""
        request = requests.prepare_snapshot(snapshotter, key, parent, {OWNER_LABEL: self._owner})
        return (await self._call(self._snapshots.Prepare, request, lease=lease)).mounts

    async def unpack(self, layer: Descriptor, mounts: Any, *, lease: str) -> str:
        """Unpack a layer into mounts; return the digest of what it unpacked to."""
        request = requests.apply_diff(layer, mounts)
        return str((await self._call(self._diff.Apply, request, lease=lease, deadline=None)).applied.digest)

    async def view(self, snapshotter: str, key: str, parent: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """Look at a snapshot: its mounts, as type, source and options. It ends with remove_snapshot."""
        answer = await self._call(self._snapshots.View, requests.view_snapshot(snapshotter, key, parent))
        return tuple((mount.type, mount.source, tuple(mount.options)) for mount in answer.mounts)

    async def commit(self, snapshotter: str, key: str, name: str, *, lease: str) -> None:
        """Make a prepared snapshot a committed one; it may be there already."""
        await self._call_once(self._snapshots.Commit, requests.commit_snapshot(snapshotter, key, name), lease=lease)

    async def remove_snapshot(self, snapshotter: str, key: str) -> None:
        """Remove a snapshot that we prepared."""
        with contextlib.suppress(_Absent):
            await self._call(self._snapshots.Remove, requests.remove_snapshot(snapshotter, key))

    async def abort(self, ref: str) -> None:
        """Throw an ingest away that we wrote to."""
        with contextlib.suppress(_Absent):
            await self._call(self._content.Abort, requests.abort_write(ref))

    async def transfer(self, request: Any, *, lease: str) -> None:
        """Run one transfer to its end (transfer.py)."""
        await self._call(self._transfer.Transfer, request, lease=lease, deadline=None)

    def side_stream(self) -> Any:
        """Open a side channel of a transfer."""
        return self._streaming.Stream(metadata=_metadata(""))

    def write_stream(self, lease: str) -> Any:
        """Open a stream that writes one blob (fetch.py)."""
        return self._content.Write(metadata=_metadata(lease))

    # -- how

    async def _call(self, method: Any, request: Any, *, lease: str = "", deadline: float | None = CALL_SECONDS) -> Any:
        return await translated(method(request, timeout=deadline, metadata=_metadata(lease)))

    async def _call_once(self, method: Any, request: Any, *, lease: str = "") -> None:
        with contextlib.suppress(_AlreadyThere):
            await self._call(method, request, lease=lease)

    async def _stream(self, method: Any, request: Any, *, deadline: float | None = CALL_SECONDS) -> AsyncIterator[Any]:
        call = method(request, timeout=deadline, metadata=_metadata(""))
        try:
            while (answer := await translated(call.read())) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                yield answer
        finally:
            call.cancel()


class _AlreadyThere(CallFailed):
    """Somebody made it before; often ourselves."""


class _Absent(CallFailed):
    """It is gone already."""


_KINDS: Mapping[str, type[CallFailed]] = {"ALREADY_EXISTS": _AlreadyThere, "NOT_FOUND": _Absent}


async def translated(call: Awaitable[T]) -> T:
    """Return what a call answers; CallFailed instead of gRPC's error."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        code, detail = error.code().name, str(error.details())
        raise _KINDS.get(code, CallFailed)(warmfailure.of_call(code, detail), code, detail) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # gRPC raises it for a channel that was closed under a call, too.
        raise CallFailed(Reason.RUNTIME_AWAY, "CANCELLED", "the connection was closed") from None


def _metadata(lease: str) -> tuple[tuple[str, str], ...]:
    return (("containerd-namespace", NAMESPACE), *((("containerd-lease", lease),) if lease else ()))


def _lease(message: Any) -> Lease:
    try:
        expires_at = datetime.datetime.fromisoformat(message.labels.get(EXPIRE_LABEL, ""))
    except ValueError:
        expires_at = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return Lease(
        id=message.id,
        digest=message.labels.get(DIGEST_LABEL, ""),
        expires_at=expires_at,
        is_done=DONE_LABEL in message.labels,
    )


def _utc(stamp: Any) -> datetime.datetime:
    instant: datetime.datetime = stamp.ToDatetime(tzinfo=datetime.UTC)
    return instant
