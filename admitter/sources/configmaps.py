"""ConfigMaps that say how GPUs are shared and cut: the few that pods of the GPU stack name, asked for by name.

In: who wants which. Out: their documents, parsed once, for core/gpuconfig.py.

Invariant: one that cannot be read keeps what was read of it before, and the log says once what to grant; one that is gone holds
nothing. No other ConfigMap is ever asked for, so a right on these names is enough (daemonset/gpuconfig). Any pod may look like one
of the stack: what those of one namespace name pushes nothing of another's out.

Why by name and no watch: a watch takes the right to read every ConfigMap of a namespace. Three of them, once a minute, cost an API
server nothing, and an edit of a layout takes its tool minutes to apply.

Not here: which ones (core/gpuconfig.py).
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import Any, TypeAlias

import lightkube
import structlog
import yaml  # lightkube's own, with which it reads kubeconfigs
from lightkube.resources import core_v1

from admitter.core import turns
from admitter.sources import apiclient
from admitter.sources.apiclient import Api

_LOG = structlog.get_logger(__name__)

PERIOD_SECONDS = 60.0
LOOK_SECONDS = 1.0
"""Between two looks at whether somebody wants one that was never asked for."""
MOST = 32
"""Asked for in a round: a cluster has a handful, and each is a request."""
MOST_EACH = 8
"""Of one namespace: the GPU operator's has three."""
_MOST_BYTES = 256 * 1024
_NOT_FOUND = 404
_MERGE = "<<"

Name: TypeAlias = tuple[str, str]
"""Namespace and name."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigMaps:
    """Belongs to one event loop."""

    def __init__(
        self,
        api: Api,
        wanted: Callable[[], Set[Name]],
        on_change: Callable[[], None],
        *,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._api, self._wanted, self._on_change = api, wanted, on_change
        self._period = period_seconds
        self._texts: dict[Name, Mapping[str, str]] = {}
        self._asked: set[Name] = set()
        self.documents: Mapping[Name, Mapping[str, Any]] = {}
        self.problems: dict[Name, str] = {}
        """Why one could not be read."""

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        client = self._api.client()
        try:
            await self._follow(client)
        finally:
            await client.close()

    async def _follow(self, client: lightkube.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            wanted = set(turns.chosen(self._wanted(), most=MOST, most_each=MOST_EACH))
            if loop.time() >= due:
                self._asked, due = set(), loop.time() + self._period
            await self._ask(client, wanted)
            await asyncio.sleep(min(LOOK_SECONDS, self._period))

    async def _ask(self, client: lightkube.AsyncClient, wanted: set[Name]) -> None:
        new = sorted(wanted - self._asked)
        self._asked |= wanted
        changed = [await self._read(client, name) for name in new]
        gone = self._texts.keys() - wanted
        for name in gone:
            del self._texts[name]
            self.problems.pop(name, None)
        if any(changed) or gone:
            # Beside the event loop: the operator's own file is 300 lines, somebody's may be far longer.
            self.documents = await asyncio.to_thread(_all_parsed, dict(self._texts))
            self._on_change()

    async def _read(self, client: lightkube.AsyncClient, name: Name) -> bool:
        """Read one; return whether it says something else than before."""
        namespace, own = name
        try:
            found = await client.get(core_v1.ConfigMap, own, namespace=namespace)
        except apiclient.Failed as error:
            status = apiclient.refusal(error)
            self._note(name, error, status)
            return status == _NOT_FOUND and self._texts.pop(name, None) is not None
        self.problems.pop(name, None)
        texts = {key: text for key, text in (found.data or {}).items() if len(text) <= _MOST_BYTES}
        is_new = texts != self._texts.get(name)
        self._texts[name] = texts
        return is_new

    def _note(self, name: Name, error: BaseException, status: int) -> None:
        problem = f"{error}"
        if status == 403:
            problem = (
                f"may not get ConfigMap {name[1]}: grant verb `get` on it in namespace {name[0]} (daemonset/gpuconfig)"
            )
        if problem != self.problems.get(name):
            self.problems[name] = problem
            _LOG.warning(
                "what the GPU stack was told is not known", namespace=name[0], configmap=name[1], problem=problem
            )


def _all_parsed(texts: Mapping[Name, Mapping[str, str]]) -> Mapping[Name, Mapping[str, Any]]:
    return {name: {key: parsed(name, key, text) for key, text in keys.items()} for name, keys in texts.items()}


def parsed(name: Name, key: str, text: str) -> Any:
    """Return the document; None for what is none, or asks for more than its text: a merge key copies, and copies of copies."""
    try:
        if _MERGE in text:
            raise ValueError(f"merge keys ({_MERGE}) are not read")
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 -- a safe loader: plain values only
    except Exception as error:  # noqa: BLE001 -- the loader raises IndexError and AttributeError too, on tags that do not fit
        _LOG.warning(
            "a ConfigMap's file is no YAML", namespace=name[0], configmap=name[1], key=key, problem=str(error)[:200]
        )
        return None
