"""What a reference is now: ask its registry, and read the image's parts, without pulling it.

In: a Reference; the node's credentials, if anonymous is not enough. Out: a Resolution, or RegistryFailed.

Invariant: a registry is asked anonymously first, so that what everybody may have is not treated as private; whether
credentials were needed decides how the image may be held (design.md section 11). Identity is the digest: a tag's is an
observation with its time.
"""

import asyncio
import concurrent.futures
import dataclasses
import datetime
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from agent.core import warmmanifest
from agent.model.warm import Descriptor, Image, Platform, Reason, Reference, Refused, StoreFacts
from agent.warmer.registry import Credentials, Registry, RegistryFailed
from agent.warmer.survey import Survey

T = TypeVar("T")

_PARSING = threading.Lock()
"""Held while JSON from outside is read: a megabyte takes 25 while it is, so that it is one at a time."""

WITHOUT_PROOF = frozenset({Reason.UNAUTHORIZED, Reason.NOT_FOUND})
"""Registries say either to somebody who may not see a repository."""


class Provider(Protocol):
    """Who has the node's credentials."""

    async def credentials(self, reference: Reference) -> Credentials | None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a reference was at a moment."""

    root: Descriptor
    image: Image | Refused
    took_credentials: bool
    took_shown: bool
    """A pod's own, not the node's."""
    observed_at: datetime.datetime


class Resolver:
    """Resolves references of one node."""

    def __init__(
        self,
        registry: Registry,
        provider: Provider,
        survey: Survey,
        platform: Platform,
        threads: concurrent.futures.Executor | None = None,
        *,
        is_kept: bool = True,
    ) -> None:
        """Prepare it; without threads of its own it asks in the loop's. What it finds is remembered, or not."""
        self._registry, self._provider, self._survey, self._platform = registry, provider, survey, platform
        self._threads, self._is_kept = threads, is_kept

    def branch(self, threads: concurrent.futures.Executor) -> "Resolver":
        """Return one that is closed by itself and asks in these threads."""
        registry = self._registry.branch()
        return Resolver(registry, self._provider, self._survey, self._platform, threads, is_kept=self._is_kept)

    def close(self) -> None:
        """End what is being asked, whatever a registry does."""
        self._registry.close()

    async def resolve(
        self, reference: Reference, facts: StoreFacts, now: datetime.datetime, shown: Credentials | None = None
    ) -> Resolution:
        """Ask the registry; parts that are known, or on the node, are not fetched again.

        `shown` are a pod's own credentials: the node's go first, so that what the node may have needs nobody's secret.
        """
        try:
            root, credentials = await self._root(reference, None), None
        except RegistryFailed as error:
            if error.reason not in WITHOUT_PROOF:
                raise
            root, credentials = await self._with_proof(reference, shown, error)
        image: Image | Refused = await self._survey.image(root, facts, is_kept=self._is_kept)
        if isinstance(image, Refused):
            image = await self._in_thread(self._read, reference, root, credentials)
            if self._is_kept and isinstance(image, Image):
                self._survey.remember(image)
        return Resolution(
            root=root,
            image=image,
            took_credentials=credentials is not None,
            took_shown=credentials is not None and credentials is shown,
            observed_at=now,
        )

    async def credentials(self, reference: Reference, *, are_needed: bool) -> Credentials | None:
        """Return what a pull of this reference is to prove itself with."""
        return await self._provider.credentials(reference) if are_needed else None

    async def _with_proof(
        self, reference: Reference, shown: Credentials | None, refusal: RegistryFailed
    ) -> tuple[Descriptor, Credentials]:
        for credentials in (await self._provider.credentials(reference), shown):
            if credentials is None:
                continue
            try:
                return await self._root(reference, credentials), credentials
            except RegistryFailed as error:
                if error.reason not in WITHOUT_PROOF:
                    raise
                refusal = error
        raise refusal

    async def _root(self, reference: Reference, credentials: Credentials | None) -> Descriptor:
        return await self._in_thread(self._registry.resolve, reference, credentials)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _read(self, reference: Reference, root: Descriptor, credentials: Credentials | None) -> Image | Refused:
        if root.size > warmmanifest.MAX_BYTES:
            return Refused(reason=Reason.BAD_MANIFEST, detail=f"a manifest of {root.size} bytes")
        data = self._registry.read(reference, root.digest, credentials, is_manifest=True)
        with _PARSING:
            chosen = warmmanifest.choose(data, self._platform)
        if isinstance(chosen, Refused):
            return chosen
        manifest = root
        if chosen is not None:
            manifest = chosen
            data = self._registry.read(reference, manifest.digest, credentials, is_manifest=True)
        with _PARSING:
            config = warmmanifest.config_of(data)
        if isinstance(config, Refused):
            return config
        config_data = self._registry.read(reference, config.digest, credentials, is_manifest=False)
        with _PARSING:
            return warmmanifest.image(root=root, manifest=manifest, manifest_data=data, config_data=config_data)
