"""eStargz layers, made here: a gzip that every tool can read, and that a lazy snapshotter can read in pieces.

In: files. Out: a layer whose blob is annotated with the digest of its table of contents; the manifest must say it.

Each file's content begins a gzip member of its own; the table says where. The last member is empty and points at the
table: 51 bytes, the pointer in its extra field (eStargz specification).
"""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping

from hack.images import oci

_TOC_ANNOTATION = "containerd.io/snapshot/stargz/toc.digest"
_TOC_NAME = "stargz.index.json"
_CHUNK = 4 * oci.MIB


def of_files(files: Mapping[str, bytes]) -> oci.Layer:
    """Return a layer of these files."""
    packed, plain, entries = io.BytesIO(), hashlib.sha256(), []

    def write(data: bytes) -> None:
        plain.update(data)
        packed.write(gzip.compress(data, compresslevel=1, mtime=0))

    for name in sorted({parent for file in files for parent in oci.parents(file)}):
        entries.append({"name": f"{name}/", "type": "dir", "mode": 0o755})
        write(_header(name, 0, tarfile.DIRTYPE))
    for name, content in files.items():
        write(_header(name, len(content), tarfile.REGTYPE))
        entries += _file(name, content, packed, write)
    toc = json.dumps({"version": 1, "entries": entries}).encode()
    offset = packed.tell()
    write(_header(_TOC_NAME, len(toc), tarfile.REGTYPE) + toc + bytes(-len(toc) % 512) + bytes(1024))
    packed.write(_footer(offset))
    annotations = {_TOC_ANNOTATION: f"sha256:{hashlib.sha256(toc).hexdigest()}"}
    blob = oci.Blob(oci.LAYER, packed.getvalue(), annotations)
    return oci.Layer(blob=blob, diff_id=f"sha256:{plain.hexdigest()}")


def _file(name: str, content: bytes, packed: io.BytesIO, write: Callable[[bytes], None]) -> list[dict[str, object]]:
    """Write a file's content chunk by chunk; return its entries."""
    entries: list[dict[str, object]] = []
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    for start in range(0, len(content), _CHUNK):
        chunk = content[start : start + _CHUNK]
        entry: dict[str, object] = {"name": name, "offset": packed.tell()}
        entry |= {"type": "chunk", "chunkOffset": start} if start else {}
        entry |= {} if start else {"type": "reg", "size": len(content), "mode": 0o755, "digest": digest}
        entry |= {"chunkSize": len(chunk), "chunkDigest": f"sha256:{hashlib.sha256(chunk).hexdigest()}"}
        entries.append(entry)
        last = start + _CHUNK >= len(content)
        write(chunk + (bytes(-len(content) % 512) if last else b""))
    return entries


def _header(name: str, size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.mode = size, kind, 0o755
    return member.tobuf(tarfile.USTAR_FORMAT)


def _footer(offset: int) -> bytes:
    """Return an empty gzip member whose extra field says where the table is."""
    extra = b"SG" + struct.pack("<H", 22) + f"{offset:016x}STARGZ".encode()
    return b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + struct.pack("<H", len(extra)) + extra + _EMPTY + bytes(8)


_EMPTY = b"\x01\x00\x00\xff\xff"
"""A stored block of nothing, the last one."""
