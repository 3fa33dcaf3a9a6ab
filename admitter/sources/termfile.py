"""The term counter on disk, where no Lease of an API server gives terms out.

Each start is a new term. Invariant: a term is on disk before anybody hears of it, so two lives of one state directory
never share one. A counter that cannot be read stops the start: guessing one could bring an old leader's leases back.

A directory that was lost starts at 1 again; agents that have heard of a higher term then give it away (core/book.py).
"""

import os
import pathlib

from muster import settings

NAME = "term"


class TermFile:
    """The counter in one state directory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder / NAME

    def read(self) -> int:
        """Return the last term; 0: there was none. InvalidSettings if the file holds anything else."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return 0
        except (OSError, UnicodeDecodeError) as error:
            raise settings.InvalidSettings([f"--state-dir: {self._path}: {error}"]) from error
        if not text.strip().isdecimal():
            raise settings.InvalidSettings([f"--state-dir: {self._path}: {text[:40]!r} is not a term"])
        return int(text)

    def write(self, term: int) -> None:
        """Put a term on disk; InvalidSettings if that is not possible."""
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("w") as file:
                file.write(f"{term}\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise settings.InvalidSettings([f"--state-dir: {self._path}: {error}"]) from error
