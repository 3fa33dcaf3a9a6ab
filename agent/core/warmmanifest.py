"""Read what a registry or the content store says an image is.

In: the bytes of an index, a manifest and a configuration. Out: the parts of one platform's image, or one clear reason why
it cannot be warmed.

Invariant: an Image has a layer for every diff id, a size above zero for every blob, and no text or number without bound;
nothing is pulled of an image that was refused. Chain ids: c0 = diff0, ci = sha256("c(i-1) diffi") (OCI image specification).

Why refuse foreign and empty layers: a registry does not serve the first, and no gzip stream is empty; the runtime would
find out only after it had pulled everything else.
"""

import hashlib
import json
import re
from typing import Any

from agent.model.warm import Descriptor, Image, Layer, Platform, Reason, Refused

INDEX_KINDS = frozenset(
    ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
)
MANIFEST_KINDS = frozenset(
    ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
)
ACCEPTED = tuple(sorted(INDEX_KINDS | MANIFEST_KINDS))

MAX_BYTES = 1024 * 1024
"""Of a manifest or configuration. Registries take 4 MiB, of which a list of empty objects is 101 MiB once it is read
(measured, Python 3.11), in a container of 160; 500 layers are 150 KB."""
MAX_BLOB_BYTES = 2**50
"""A petabyte: 500 of them are still a number that the feed can hold."""
MAX_KIND = 255
"""Characters of a media type (RFC 6838 section 4.2)."""
MAX_LAYERS = 500
_SHOWN = 6
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def choose(data: bytes, platform: Platform) -> Descriptor | Refused | None:
    """Return the manifest that an index has for a platform; None if the bytes are a manifest themselves."""
    content = _object(data)
    if content is None:
        return Refused(reason=Reason.BAD_MANIFEST, detail="the manifest is not a JSON object")
    if content.get("schemaVersion") == 1 or "fsLayers" in content:
        return Refused(reason=Reason.SCHEMA_1, detail="a schema 1 manifest: push the image anew")
    if content.get("mediaType") not in INDEX_KINDS and "manifests" not in content:
        return None
    entries = [entry for entry in _list(content.get("manifests")) if isinstance(entry, dict)]
    for entry in entries:
        if _fits(entry.get("platform"), platform):
            found = _descriptor(entry)
            return found or Refused(
                reason=Reason.BAD_MANIFEST, detail="the index has an entry without digest, size or kind"
            )
    names = sorted({_name(entry.get("platform")) for entry in entries})
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(names[:_SHOWN]) or "none"
    return Refused(reason=Reason.NO_PLATFORM, detail=f"not for {platform}; for {shown}{more}")


def config_of(data: bytes) -> Descriptor | Refused:
    """Return where a manifest's configuration is."""
    content = _object(data) or {}
    found = _descriptor(content.get("config"))
    return found or Refused(reason=Reason.BAD_MANIFEST, detail="the manifest names no configuration")


def image(*, root: Descriptor, manifest: Descriptor, manifest_data: bytes, config_data: bytes) -> Image | Refused:
    """Return the image that manifest and configuration make together."""
    config = config_of(manifest_data)
    if isinstance(config, Refused):
        return config
    layers = _list((_object(manifest_data) or {}).get("layers"))
    blobs = [_descriptor(layer) for layer in layers]
    problem = _layer_problem(layers, blobs)
    if problem is not None:
        return problem
    diff_ids = _diff_ids(config_data)
    if isinstance(diff_ids, Refused):
        return diff_ids
    if len(diff_ids) != len(blobs):
        return Refused(
            reason=Reason.BAD_CONFIG,
            detail=f"{len(blobs)} layers in the manifest, {len(diff_ids)} in the configuration",
        )
    chain = _chain(diff_ids)
    parts = tuple(
        Layer(blob=blob, diff_id=diff_id, chain_id=chain_id)
        for blob, diff_id, chain_id in zip(blobs, diff_ids, chain, strict=True)
        if blob is not None
    )
    return Image(root=root, manifest=manifest, config=config, layers=parts)


def _layer_problem(layers: list[Any], blobs: list[Descriptor | None]) -> Refused | None:
    if not layers:
        return Refused(reason=Reason.BAD_MANIFEST, detail="the manifest has no layers")
    if len(layers) > MAX_LAYERS:
        return Refused(reason=Reason.BAD_MANIFEST, detail=f"{len(layers)} layers, at most {MAX_LAYERS}")
    for number, (layer, blob) in enumerate(zip(layers, blobs, strict=True)):
        if blob is None:
            return Refused(reason=Reason.BAD_MANIFEST, detail=f"layer {number} has no digest, size or kind")
        if layer.get("urls") or "foreign" in blob.kind or "nondistributable" in blob.kind:
            return Refused(reason=Reason.FOREIGN_LAYER, detail=f"layer {number} is kept outside the registry")
        if blob.size == 0:
            return Refused(reason=Reason.EMPTY_LAYER, detail=f"layer {number} has 0 bytes")
    return None


def _diff_ids(data: bytes) -> list[str] | Refused:
    content = _object(data)
    if content is None:
        return Refused(reason=Reason.BAD_CONFIG, detail="the configuration is not a JSON object")
    rootfs = content.get("rootfs")
    found = _list(rootfs.get("diff_ids")) if isinstance(rootfs, dict) else []
    if not all(isinstance(diff_id, str) and _DIGEST.fullmatch(diff_id) for diff_id in found):
        return Refused(reason=Reason.BAD_CONFIG, detail="the configuration has a diff id that is no digest")
    return found


def _chain(diff_ids: list[str]) -> list[str]:
    chain: list[str] = []
    for diff_id in diff_ids:
        text = f"{chain[-1]} {diff_id}" if chain else ""
        chain.append(f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else diff_id)
    return chain


def _fits(said: Any, platform: Platform) -> bool:
    if not isinstance(said, dict) or (said.get("os"), said.get("architecture")) != (platform.os, platform.architecture):
        return False
    # arm64 without a variant means v8; for the rest a variant has to be asked for.
    return said.get("variant", "") in {platform.variant, "v8" if platform.architecture == "arm64" else ""}


def _name(said: Any) -> str:
    if not isinstance(said, dict):
        return "unnamed"
    return "/".join(str(said[part]) for part in ("os", "architecture", "variant") if said.get(part))[:40]


def _descriptor(said: Any) -> Descriptor | None:
    if not isinstance(said, dict):
        return None
    digest, size, kind = said.get("digest"), said.get("size"), said.get("mediaType", "")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or not isinstance(kind, str):
        return None
    if len(kind) > MAX_KIND:
        return None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_BLOB_BYTES:
        return None
    return Descriptor(digest=digest, size=size, kind=kind)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _list(said: Any) -> list[Any]:
    return said if isinstance(said, list) else []
