"""Which images were pulled shortly before a boot that nobody announced.

In: a file that outlives the boot. Out: digests whose files may not have reached the disk, with what these were like.

Why: after a power loss snapshots that containerd calls ready have held missing or empty files (images.md section 11). An
image is trusted again when its files are what they were right after its pull (fingerprint.py).

Invariant: without the file, or with one that cannot be read, nothing is suspected and nothing fails.
"""

import dataclasses
import datetime
import pathlib
from collections.abc import Mapping
from typing import Any

from agent.warmer import statefile

WRITTEN_BACK = datetime.timedelta(minutes=10)
"""The kernel writes dirty pages back within seconds; minutes leave room for a disk that was busy."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pulled image."""

    at: datetime.datetime
    files: str
    """Their fingerprint; empty: they could not be read."""


class Journal:
    """The file and what it said at the start."""

    def __init__(self, path: pathlib.Path | None, boot_id: str) -> None:
        self._file, self._boot_id = statefile.Writer(path), boot_id
        said = statefile.read(path)
        self._entries: dict[str, Entry] = _entries(said)
        is_unclean = bool(said) and said.get("boot_id") != boot_id and said.get("clean") is not True
        newest = max((entry.at for entry in self._entries.values()), default=None)
        self.suspects: dict[str, str] = {
            digest: entry.files
            for digest, entry in self._entries.items()
            if is_unclean and newest is not None and newest - entry.at < WRITTEN_BACK
        }
        """Digest of a manifest -> what its files must be like."""
        self._write(is_clean=False)

    def pulled(self, digest: str, at: datetime.datetime, files: str) -> None:
        """Note a pull; one that found the suspect layers in place, since another image holds them, has mended nothing."""
        if not self.suspects.get(digest) or self.judged(digest, files):
            self.suspects.pop(digest, None)
            self._entries[digest] = Entry(at=at, files=files)
        old = sorted(self._entries, key=lambda each: self._entries[each].at)[:-256]
        for each in old:
            del self._entries[each]
        self._write(is_clean=False)

    def judged(self, digest: str, files: str) -> bool:
        """Take what a suspect's files are like now; return whether it is trusted again."""
        if files and self.suspects.get(digest) == files:
            del self.suspects[digest]
        return digest not in self.suspects

    def close(self) -> None:
        """Note that the warmer was asked to end: what it pulled had time to reach the disk, or a shutdown syncs it."""
        self._write(is_clean=True)
        self._file.close()

    def _write(self, *, is_clean: bool) -> None:
        images = {digest: [entry.at.isoformat(), entry.files] for digest, entry in self._entries.items()}
        # Without the file the next unclean boot is not noticed; that is worth no failed pull.
        self._file.write({"boot_id": self._boot_id, "clean": is_clean, "images": images})


def _entries(said: Mapping[str, Any]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    images = said.get("images")
    for digest, entry in images.items() if isinstance(images, dict) else ():
        try:
            at, files = entry
            read = Entry(at=datetime.datetime.fromisoformat(at), files=files)
        except (TypeError, ValueError):
            continue
        if read.at.tzinfo is not None and isinstance(files, str):
            found[str(digest)] = read
    return found
