"""One container image, made here: a static program that waits to be told to stop.

In: a C compiler. Out: an OCI archive that containerd imports. The same image is the sandbox of every pod and the
container of the tests' pods, because no registry of images can be asked.

Invariant: the archive is the same for the same binary; nothing in it depends on when or where it was made.

Not here: pulling, and images with content.
"""

import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import tarfile

NAME = "muster.dev/test/pause:1"

_PROGRAM = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void leave(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) {
  signal(SIGTERM, leave);
  signal(SIGINT, leave);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
"""


def build(folder: pathlib.Path) -> pathlib.Path:
    """Compile the program and write the archive into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    source, binary = folder / "pause.c", folder / "pause"
    source.write_text(_PROGRAM)
    subprocess.run(["cc", "-static", "-Os", "-s", "-o", binary, source], check=True)
    path = folder / "pause.tar"
    path.write_bytes(archive(binary.read_bytes()))
    return path


def archive(binary: bytes) -> bytes:
    """Return the OCI archive of an image that holds one file."""
    layer = _tar({"pause": binary}, mode=0o755)
    zipped = gzip.compress(layer, mtime=0)
    configuration = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _described("application/vnd.oci.image.config.v1+json", configuration),
            "layers": [_described("application/vnd.oci.image.layer.v1.tar+gzip", zipped)],
        }
    )
    entry = _described("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["annotations"] = {"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1"}
    index = _json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]})
    blobs = {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in (zipped, configuration, manifest)}
    return _tar({"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index, **blobs}, mode=0o644)


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as written:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            written.addfile(member, io.BytesIO(content))
    return output.getvalue()


def _described(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
