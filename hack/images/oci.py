"""Container images of any size, made here from generated files, and pushed to a registry.

In: layers as (bytes, seed) or as files. Out: blobs with their digests; a manifest, or an index over several platforms.

Invariant: the same description gives the same digests on every machine, so that a benchmark can name its image. Content
compresses two to one, as a CUDA image does (images.md, the test image).

Why parent directories have entries of their own: tools that convert layers ask for them.
"""

import base64
import dataclasses
import gzip
import hashlib
import http.client
import io
import json
import random
import tarfile
from collections.abc import Iterable, Mapping, Sequence

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MIB = 1024 * 1024
_FILE_BYTES = 4 * MIB


@dataclasses.dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with the type they are served as."""

    kind: str
    data: bytes
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def described(self, **more: object) -> dict[str, object]:
        """Return the descriptor that others refer to this blob by."""
        said = {"annotations": dict(self.annotations)} if self.annotations else {}
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.data), **said, **more}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A compressed layer and the digest of what it unpacks to."""

    blob: Blob
    diff_id: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """All blobs of an image; `root` is what a tag points at."""

    root: Blob
    blobs: tuple[Blob, ...]


def generated(unpacked_bytes: int, seed: int) -> Layer:
    """Return a layer of pseudo-random files."""
    return of_files(generated_files(unpacked_bytes, seed))


def generated_files(unpacked_bytes: int, seed: int) -> dict[str, bytes]:
    """Return pseudo-random files; half of each repeats, so that it compresses two to one."""
    source = random.Random(seed)
    files = {}
    for number, start in enumerate(range(0, unpacked_bytes, _FILE_BYTES)):
        half = min(_FILE_BYTES, unpacked_bytes - start) // 2
        files[f"opt/part{seed}/file{number}"] = source.randbytes(half) + b"\0" * half
    return files


def of_files(files: Mapping[str, bytes], *, mode: int = 0o755) -> Layer:
    """Return a layer that holds these files, parent directories first."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as written:
        for name in sorted({parent for file in files for parent in parents(file)}):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            written.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            written.addfile(member, io.BytesIO(content))
    data = tar.getvalue()
    return Layer(
        blob=Blob(LAYER, gzip.compress(data, compresslevel=1, mtime=0)),
        diff_id=f"sha256:{hashlib.sha256(data).hexdigest()}",
    )


def image(layers: Sequence[Layer], *, architecture: str = "amd64", entrypoint: Sequence[str] = ("/true",)) -> Image:
    """Return an image of one platform."""
    config = _json(
        CONFIG,
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        },
    )
    return of_parts(config, [layer.blob for layer in layers])


def of_parts(config: Blob, layers: Sequence[Blob], **more: object) -> Image:
    """Return an image of these very blobs, whether or not they make sense."""
    manifest = _json(
        MANIFEST,
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.described(),
            "layers": [layer.described() for layer in layers],
            **more,
        },
    )
    return Image(root=manifest, blobs=(config, *layers, manifest))


def index(images: Mapping[str, Image]) -> Image:
    """Return an image of several platforms, by architecture."""
    manifests = [
        part.root.described(platform={"os": "linux", "architecture": architecture})
        for architecture, part in images.items()
    ]
    root = _json(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
    return Image(root=root, blobs=(*(blob for part in images.values() for blob in part.blobs), root))


def push(
    address: str, repository: str, tags: Iterable[str], content: Image, credentials: tuple[str, str] | None = None
) -> None:
    """Upload an image to the registry at host:port."""
    headers = {}
    if credentials is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        for blob in content.blobs:
            if blob.kind in {MANIFEST, INDEX}:
                _send(connection, "PUT", f"/v2/{repository}/manifests/{blob.digest}", blob, headers)
                continue
            place = _send(connection, "POST", f"/v2/{repository}/blobs/uploads/", Blob("", b""), headers)
            place = place.removeprefix(f"http://{address}")
            separator = "&" if "?" in place else "?"
            octets = Blob("application/octet-stream", blob.data)
            _send(connection, "PUT", f"{place}{separator}digest={blob.digest}", octets, headers)
        for tag in tags:
            _send(connection, "PUT", f"/v2/{repository}/manifests/{tag}", content.root, headers)
    finally:
        connection.close()


def _send(
    connection: http.client.HTTPConnection, method: str, path: str, blob: Blob, headers: Mapping[str, str]
) -> str:
    """Send one request; return where an upload goes on."""
    kind = {"Content-Type": blob.kind} if blob.kind else {}
    connection.request(method, path, body=blob.data, headers={**headers, **kind})
    response = connection.getresponse()
    body = response.read()
    if response.status not in {201, 202}:
        raise OSError(f"{method} {path}: {response.status} {body[:200]!r}")
    return response.getheader("Location", "")


def parents(name: str) -> list[str]:
    """Return the folders above a file, highest first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _json(kind: str, content: object) -> Blob:
    return Blob(kind, json.dumps(content, sort_keys=True).encode())
