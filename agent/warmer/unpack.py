"""Unpack an image's layers into snapshots ourselves, under our lease and without an image record.

In: an image whose blobs are in the content store. Out: its chain ids, committed.

Invariant: at no moment does the runtime list the image. That is what a shadow is: no pod without credentials can use it,
and nothing has to be removed afterwards that could be somebody else's by then.

Why not a pull whose record is removed (images.md section 1): the record is there for a moment, and the kubelet may have
made it its own in that moment; removing it then would take an image from under a pod.

Not here: downloading (fetch.py).
"""

import contextlib
import uuid
from collections.abc import Callable

from agent.core import warmyield
from agent.model.warm import Image, Layer, Reason
from agent.warmer.client import CallFailed, Client


async def unpack(
    runtime: Client,
    image: Image,
    present: frozenset[str],
    *,
    snapshotter: str,
    lease: str,
    note: Callable[[Layer], None],
) -> None:
    """Unpack the layers that are not `present`, lowest first; `note` hears of each that is done."""
    parent = ""
    for layer in image.layers:
        if layer.chain_id not in present:
            await _unpack_layer(runtime, layer, parent, snapshotter=snapshotter, lease=lease)
        await runtime.add_resource(lease, f"snapshots/{snapshotter}", layer.chain_id)
        parent = layer.chain_id
        note(layer)


async def _unpack_layer(runtime: Client, layer: Layer, parent: str, *, snapshotter: str, lease: str) -> None:
    key = f"{warmyield.OWN_PREFIX}{uuid.uuid4().hex[:12]} {layer.chain_id}"
    mounts = await runtime.prepare(snapshotter, key, parent, lease=lease)
    try:
        unpacked = await runtime.unpack(layer.blob, mounts, lease=lease)
        if unpacked != layer.diff_id:
            raise CallFailed(Reason.CORRUPT_BLOB, "", f"{layer.blob.digest} unpacks to {unpacked}, not {layer.diff_id}")
        await runtime.commit(snapshotter, key, layer.chain_id, lease=lease)
    finally:
        # Gone when it was committed. Else half a layer, which an interrupted unpack must not leave behind.
        with contextlib.suppress(CallFailed):
            await runtime.remove_snapshot(snapshotter, key)
