"""Is the node busy with something that matters more than our pull?

In: containerd's events and ingests, the number of pods that are starting, the pressure on disks. Out: why a pull of ours should stand back, until
the node has been quiet for a while.

Invariant: it is asked before a pull begins and all the time while one runs; what belongs to our own pull never counts
(core/warmyield.py).
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from agent.core import warmyield
from agent.model.warm import Image, Ingest
from agent.warmer import pressure
from agent.warmer.client import Event
from agent.warmer.config import WarmerConfig
from muster.model.reading import Known

STARTING_SECONDS = 60.0
"""How long the agent's word about starting pods counts without being said again."""
PRESSURE_SECONDS = 2.0
"""The kernel works its averages out anew every two seconds."""


class Busy:
    """What was seen last."""

    def __init__(self, config: WarmerConfig, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._quiet, self._monotonic = config.quiet_seconds, monotonic
        self._pressure_path, self._most_pressure = config.io_pressure_path, config.io_pressure_percent
        self._look_again_at = 0.0
        self._why, self._until = "", 0.0
        self._ours = warmyield.Ours()
        self._offsets: Mapping[str, int] = {}
        self._starting, self._told_at = 0, 0.0
        self.noted = asyncio.Event()
        """Set whenever there is a new reason."""
        self.times = 0
        """How often our own pull had to stand back."""

    def why(self) -> str:
        """Return why to stand back now; empty: there is no reason."""
        now = self._monotonic()
        if self._starting and now - self._told_at < STARTING_SECONDS:
            return f"{self._starting} pods are starting"
        return self._why if now < self._until else ""

    def why_wait(self) -> str:
        """Return why no pull may begin now; one that runs goes on where only the disks are slow: they may be its own."""
        why = self.why()
        match pressure.read(self._pressure_path):
            case Known(percent) if percent > self._most_pressure and not why:
                self._look_again_at = self._monotonic() + PRESSURE_SECONDS
                return f"the node waits for its disks {percent:.0f} % of the time"
            case _:
                return why

    def quiet_at(self) -> float:
        """Return when the node will have been quiet for long enough, as far as is known."""
        return max(self._until, self._look_again_at)

    def is_ours(self, image: Image | None) -> None:
        """Say which image our pull is of; None: there is none."""
        digests, chain_ids = (image.digests, image.chain_ids) if image is not None else (frozenset(), frozenset())
        self._ours = warmyield.Ours(digests=digests, chain_ids=chain_ids)

    def hear(self, event: Event) -> None:
        """Take one event of containerd."""
        if event.topic == "/snapshot/prepare":
            self._note(warmyield.of_prepare(event.subject, self._ours))
        elif event.topic == "/content/create":
            self._note(warmyield.of_content(event.subject, self._ours))

    def look(self, ingests: tuple[Ingest, ...]) -> None:
        """Take the ingests as they are now."""
        self._note(warmyield.of_ingests(self._offsets, ingests, self._ours))
        self._offsets = {ingest.ref: ingest.offset for ingest in ingests}

    def begin(self, ingests: tuple[Ingest, ...]) -> None:
        """Take the first look: what lies there may have lain for long."""
        self._offsets = {ingest.ref: ingest.offset for ingest in ingests}

    def starting(self, pods: int) -> None:
        """Take how many pods of this node are starting."""
        self._starting, self._told_at = pods, self._monotonic()
        if pods:
            self.noted.set()

    def _note(self, why: str) -> None:
        if why:
            self._why, self._until = why, self._monotonic() + self._quiet
            self.noted.set()
