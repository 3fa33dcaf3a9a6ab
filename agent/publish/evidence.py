"""Keep on tmpfs what a restart of the agent must not forget.

Out: one small JSON file: the core's History, the start counter of the epoch, the most GPUs seen, whether a hung reader was
replaced, the leases held. In: the same file at the next start, the only thing of ours that we read back (design.md section 2).

Invariant: nothing here raises and nothing here stops the agent. A file of another boot, a broken one and a missing one
read alike as "no evidence"; a broken one is said in the log. Leases that the feed could not tell cost themselves, not the rest. The start counter rises with every start of a boot, also when the
file was lost: it is never below the milliseconds since boot, by the clock that only moves forward. Otherwise an admitter
would go on believing the agent that was there before.

Writes are skipped while nothing changed, and replace the file as a whole.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from agent.model.history import History
from muster.model import codec, jsonform, pbform
from muster.model.lease import LeaseSet
from muster.pb.muster.v1 import feed_pb2

_LOG = structlog.get_logger(__name__)

SCHEMA = "muster.evidence/v1"
FILE_NAME = "evidence.json"
MAX_BYTES = 4 * 1024 * 1024
"""History is bounded (agent.model.history); this is far above it."""
_MAX_COUNTER = 2**63
"""Starts and GPUs beyond it were never counted; the wire's fields end a little above."""
_MAX_REMEMBERED = 2**53
"""Of the history: the admitter takes no report with more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What survives."""

    schema: str = codec.always(SCHEMA)
    boot_id: str
    start_counter: int
    history: History = History()
    learned_gpus: int = 0
    """Most GPUs that the driver has shown since boot; 0: none yet."""
    reader_replaced: bool = False
    """The one replacement of a hung reader in this boot was used (agent.sources.hungreader)."""
    leases: LeaseSet = LeaseSet()
    """A restart must not loosen what is leased: the next leader has it from us alone (decision 0004)."""


class EvidenceFile:
    """The file of one boot."""

    def __init__(self, directory: pathlib.Path, boot_id: str) -> None:
        self._path = directory / FILE_NAME
        self._boot_id = boot_id
        self._written: Evidence | None = None

    def start(self, monotonic: float) -> Evidence:
        """Return what is known at this start, with its own start counter, and store that at once."""
        found = self._read() or Evidence(boot_id=self._boot_id, start_counter=0)
        evidence = dataclasses.replace(found, start_counter=max(found.start_counter + 1, int(monotonic * 1000)))
        self.keep(evidence)
        return evidence

    def keep(self, evidence: Evidence) -> None:
        """Replace the file if anything changed."""
        if evidence == self._written:
            return
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(jsonform.to_json(evidence))
            if len(text) > MAX_BYTES:
                # What could not be read back must not replace what can.
                raise ValueError(f"has more than {MAX_BYTES} bytes")
            with fresh.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except (OSError, ValueError) as error:
            _LOG.warning(
                "evidence cannot be written: a restart will begin anew", path=str(self._path), error=str(error)
            )
            return
        self._written = evidence

    def _read(self) -> Evidence | None:
        try:
            if self._path.stat().st_size > MAX_BYTES:
                raise codec.Malformed(str(self._path), f"has more than {MAX_BYTES} bytes")
            data = json.loads(self._path.read_bytes())
            leases = data.pop("leases", {}) if isinstance(data, dict) else {}
            evidence = jsonform.from_json(Evidence, data)
            if evidence.schema != SCHEMA or not _is_count(evidence.start_counter, evidence.learned_gpus):
                raise codec.Malformed(str(self._path), f"is not {SCHEMA}")
            for field in _absurd(jsonform.to_json(evidence.history), "$.history"):
                raise codec.Malformed(field, "is no number that was ever remembered")
            evidence = dataclasses.replace(evidence, leases=self._sound(leases))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            _LOG.warning("evidence is ignored: it cannot be read", path=str(self._path), error=str(error)[:200])
            return None
        if evidence.boot_id != self._boot_id:
            _LOG.info("evidence is of an earlier boot and ignored", path=str(self._path))
            return None
        return evidence

    def _sound(self, data: Any) -> LeaseSet:
        """Return the leases, or none where they are none or the feed has no place for them: it would end at every start."""
        try:
            leases = jsonform.from_json(LeaseSet, data, "$.leases")
            pbform.fill(feed_pb2.LeaseSet(), leases)
        except ValueError as error:
            _LOG.error("the leases in the evidence are ignored", path=str(self._path), error=str(error)[:200])
            return LeaseSet()
        return leases


def _is_count(*numbers: int) -> bool:
    return all(0 <= number < _MAX_COUNTER for number in numbers)


def _absurd(data: Any, path: str) -> Iterator[str]:
    """Yield the paths of numbers that no history holds: a floor above every count would let capacity rise in one step."""
    if isinstance(data, Mapping):
        for name, item in data.items():
            yield from _absurd(item, f"{path}.{name}")
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from _absurd(item, f"{path}[{index}]")
    elif isinstance(data, int) and not 0 <= data <= _MAX_REMEMBERED:
        yield path


def read_boot_id(path: pathlib.Path) -> str:
    """Return the kernel's boot id, or an empty text where it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        _LOG.warning("the boot id cannot be read", path=str(path), error=str(error))
        return ""
