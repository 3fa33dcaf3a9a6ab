"""All that the warmer knows: what is wanted, what each reference was, what failed, what the node has.

In: resolutions, failures, one look at containerd. Out: candidates for the plan, and the report.

Invariant: a reference that a registry does not answer for keeps what it was; what the runtime lists under its name is as
good an answer as a registry's for how warm it is.
"""

import datetime
import shutil
from collections.abc import Callable, Iterable, Mapping

from agent.core import warmfailure, warmreport, warmth
from agent.core.warmplan import Candidate, Plan
from agent.model.warm import (
    Descriptor,
    Disk,
    DiskReading,
    Failure,
    Image,
    Platform,
    Reason,
    Reference,
    Refused,
    StoreFacts,
    Wanted,
)
from agent.warmer import abilities
from agent.warmer.client import Client
from agent.warmer.config import WarmerConfig
from agent.warmer.podsecrets import PodSecrets
from agent.warmer.registry import Credentials
from agent.warmer.resolve import Resolution
from agent.warmer.survey import Survey
from muster.model.reading import Known, Unknown
from muster.model.warmth import ImageStore, NodeWarmth, PullState, TagObservation

MAX_HELD = 256
"""Hosts that said when they want to be asked again; a tenant can name as many as it likes."""
MAX_LOOKED = 1000
"""Names of a node's images: each has two or three, and MAX_IMAGES are told. A look reads what it does not know yet."""
_REFUSED = frozenset({Reason.NOT_FOUND, Reason.UNAUTHORIZED, Reason.SECRET_MISSING})
"""Another credential may be answered otherwise."""
_STEP = 64 * 1024 * 1024
"""Free bytes are told in steps, or a node at rest would never be at rest."""


class Estate:
    """What is known now."""

    def __init__(
        self,
        config: WarmerConfig,
        survey: Survey,
        platform: Platform,
        *,
        monotonic: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._config, self._survey, self._platform = config, survey, platform
        self._monotonic, self._jitter = monotonic, jitter
        self.listed: tuple[Wanted, ...] = ()
        self.hinted: tuple[Wanted, ...] = ()
        self.habits: tuple[Wanted, ...] = ()
        self._resolutions: dict[str, Resolution] = {}
        self._due: dict[str, float] = {}
        self._failures: dict[str, Failure] = {}
        self.host_holds: dict[str, float] = {}
        self.secrets = PodSecrets(monotonic)
        self.abilities = abilities.Abilities()
        self.leaked_bytes = 0
        self.rates: dict[PullState, float] = {}
        """Compressed bytes a second, learned, while downloading and while unpacking."""

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """The operator's images, then the admitter's, then the node's own; each once."""
        return tuple(_unique((*self.listed, *self.hinted, *self.habits)))

    def hint(self, wanted: tuple[Wanted, ...], shown: Mapping[str, Credentials]) -> bool:
        """Take what the admitter wants, in place of what it wanted before; return whether anything is new.

        What another secret may open, or a secret that has come, is asked for again at once.
        """
        is_news, self.hinted = wanted != self.hinted, wanted
        listed = {str(each.reference) for each in self.listed}
        hinted = {str(each.reference): each.secret for each in wanted}
        changed = self.secrets.promise({key: version for key, version in hinted.items() if key not in listed})
        changed |= {key for key, credentials in shown.items() if self.secrets.keep(key, credentials)}
        for key in changed:
            if key in self._failures and self._failures[key].reason in _REFUSED:
                del self._failures[key]
        return is_news or bool(changed)

    def due(self) -> tuple[Reference, ...]:
        """Return the references to ask a registry about now."""
        now = self._monotonic()
        return tuple(
            wanted.reference
            for wanted in self.wanted
            if self._due.get(str(wanted.reference), 0.0) <= now
            and self.host_holds.get(wanted.reference.host, 0.0) <= now
            and self._retry_at(str(wanted.reference)) <= now
        )

    def resolved(self, reference: Reference, resolution: Resolution) -> None:
        """Take what a reference is; a digest never becomes another."""
        key, now = str(reference), self._monotonic()
        before = self._resolutions.get(key)
        if before is None or before.root.digest != resolution.root.digest:
            self._failures.pop(key, None)
        elif key in self._failures and self._failures[key].reason in _REFUSED:
            del self._failures[key]
        self._resolutions[key] = resolution
        wait = self._config.tag_seconds * (1 + self._jitter() / 2)
        self._due[key] = float("inf") if reference.digest and isinstance(resolution.image, Image) else now + wait

    def resolution(self, reference: Reference) -> Resolution | None:
        """Return what a reference was when it was last asked about."""
        return self._resolutions.get(str(reference))

    def failed(self, reference: Reference, reason: Reason, detail: str, retry_after: float = 0.0) -> Failure:
        """Take a failure; return it with its next try."""
        key = str(reference)
        failure = warmfailure.failed(
            self._failures.get(key),
            reason,
            detail,
            host=reference.host,
            now=self._monotonic(),
            jitter=self._jitter(),
            retry_after=retry_after,
        )
        self._failures[key] = failure
        if failure.host:
            self.hold(failure.host, failure.retry_at)
        return failure

    def hold(self, host: str, until: float) -> None:
        """Leave a host alone until a moment; what is over is forgotten, and what finds no room is not noted."""
        now = self._monotonic()
        self.host_holds = {each: end for each, end in self.host_holds.items() if end > now}
        if host in self.host_holds or len(self.host_holds) < MAX_HELD:
            self.host_holds[host] = max(self.host_holds.get(host, 0.0), until)

    def succeeded(self, reference: Reference) -> None:
        """Forget an image's failures."""
        self._failures.pop(str(reference), None)

    def next_moment(self) -> float:
        """Return when something can change by itself."""
        now = self._monotonic()
        moments = [failure.retry_at for failure in self._failures.values()]
        moments += [*self.host_holds.values(), *(self._due.get(str(wanted.reference), 0.0) for wanted in self.wanted)]
        return min((moment for moment in moments if moment > now), default=now + self._config.poll_seconds)

    def _forget(self) -> None:
        """Forget what is not wanted any more: hints and habits come and go. A failure stays as long as it holds back."""
        wanted, now = {str(each.reference) for each in self.wanted}, self._monotonic()
        for known in (self._resolutions, self._due):
            for key in known.keys() - wanted:
                del known[key]
        for key in [key for key in self._failures.keys() - wanted if self._failures[key].retry_at <= now]:
            del self._failures[key]

    async def candidates(self, facts: StoreFacts) -> tuple[Candidate, ...]:
        """Return what is wanted with all that is known of it."""
        self._forget()
        found, names = [], warmth.names_of(facts)
        for wanted in self.wanted:
            key = str(wanted.reference)
            resolution = self._resolutions.get(key)
            image: Image | Refused | None = resolution.image if resolution is not None else None
            if image is None and key in facts.records:
                here = await self._survey.image(_bare(facts.records[key].digest), facts)
                image = here if isinstance(here, Image) else None
            is_opened = resolution is not None and resolution.took_shown
            found.append(
                Candidate(
                    wanted=wanted,
                    image=image,
                    warmth=warmth.assess(image, facts, names) if isinstance(image, Image) else None,
                    failure=self._failures.get(key),
                    took_credentials=resolution is not None and resolution.took_credentials,
                    lacks_secret=is_opened and self.secrets.of(wanted.reference) is None,
                )
            )
        self.secrets.settle(each.key for each in found if not each.is_warm)
        return tuple(found)

    def opener(self, reference: Reference) -> Credentials | None:
        """Return the pod's secret that opened an image."""
        resolution = self._resolutions.get(str(reference))
        return self.secrets.of(reference) if resolution is not None and resolution.took_shown else None

    async def report(
        self,
        facts: StoreFacts,
        candidates: tuple[Candidate, ...],
        plan: Plan,
        *,
        pulls: dict[str, PullState],
        disk: DiskReading,
        unverified: frozenset[str],
        now: datetime.datetime,
    ) -> NodeWarmth:
        """Return what to tell."""
        others = await self.others(facts)
        self.leaked_bytes = warmth.leaked_bytes(facts, now)
        known = warmreport.Known(
            candidates=candidates,
            facts=facts,
            others=others,
            pulls=pulls,
            waits=plan.waits,
            tags=self._tags(),
            unverified=unverified,
            more=_unlooked(facts),
        )
        return warmreport.report(known, self._store(disk, facts), str(self._platform), now)

    async def others(self, facts: StoreFacts) -> dict[str, Image]:
        """Return what the runtime lists, by name, and no more than can be told."""
        found = {}
        for name in _listed(facts)[:MAX_LOOKED]:
            image = await self._survey.image(_bare(facts.records[name].digest), facts)
            if isinstance(image, Image):
                found[name] = image
        return found

    def _tags(self) -> Iterable[TagObservation]:
        for wanted in self.wanted:
            resolution = self._resolutions.get(str(wanted.reference))
            if resolution is not None and wanted.reference.tag:
                yield TagObservation(
                    reference=str(wanted.reference),
                    digest=resolution.root.digest,
                    observed_at=resolution.observed_at,
                )

    def _store(self, disk: DiskReading, facts: StoreFacts) -> ImageStore:
        # Without its handler nobody takes a snapshotter that cannot be read for an empty one. Without the empty name's,
        # a pod of no RuntimeClass would be taken for one of our own snapshotter.
        seen = {self._config.snapshotter, *facts.elsewhere}
        return ImageStore(
            runtime_version=self.abilities.version,
            handlers={name: its for name, its in self.abilities.handlers.items() if not name or its in seen},
            snapshotter=self._config.snapshotter,
            leaked_bytes=self.leaked_bytes,
            download_bytes_per_second=_rate(self.rates, PullState.DOWNLOADING),
            unpack_bytes_per_second=_rate(self.rates, PullState.UNPACKING),
            disk_bytes=_in_steps(disk, "total_bytes"),
            disk_free_bytes=_in_steps(disk, "free_bytes"),
        )

    def _retry_at(self, key: str) -> float:
        failure = self._failures.get(key)
        return 0.0 if failure is None else failure.retry_at


async def read_disk(runtime: Client, config: WarmerConfig) -> DiskReading:
    """Read the image file system, where it can be seen from here."""
    folder = config.image_root or await runtime.image_folder()
    if folder is None:
        return Unknown("NotReported", "the runtime does not say where images are")
    # A snapshotter of another program has no folder there; containerd's own, above it, holds the blobs.
    is_guess = config.image_root is None and not folder.exists()
    place = folder.parent if is_guess else folder
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        return Unknown("NotVisible", f"{folder}: {error.strerror}")
    return Known(Disk(total_bytes=usage.total, free_bytes=usage.free))


def _bare(digest: str) -> Descriptor:
    return Descriptor(digest=digest, size=0, kind="")


def _listed(facts: StoreFacts) -> list[str]:
    return sorted(name for name in facts.records if not name.startswith("sha256:"))


def _unlooked(facts: StoreFacts) -> int:
    """Return how many images are behind the names that nobody looks at."""
    names = _listed(facts)
    looked = {facts.records[name].digest for name in names[:MAX_LOOKED]}
    return len({facts.records[name].digest for name in names[MAX_LOOKED:]} - looked)


def _unique(wanted: Iterable[Wanted]) -> Iterable[Wanted]:
    seen: set[str] = set()
    for each in wanted:
        if str(each.reference) not in seen:
            seen.add(str(each.reference))
            yield each


def _in_steps(disk: DiskReading, name: str) -> Known[int] | Unknown:
    match disk:
        case Known(read):
            return Known(getattr(read, name) // _STEP * _STEP)
        case Unknown() as unknown:
            return unknown


def _rate(rates: dict[PullState, float], state: PullState) -> Known[float] | Unknown:
    return Known(rates[state]) if state in rates else Unknown("NotLearned")
