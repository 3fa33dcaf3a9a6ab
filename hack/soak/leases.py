"""Gangs that get a lease and hold it for a while, beside everything that breaks (decision 0004).

In: the admitter's client, the worlds. Out: in each world the units that are held there, for the oracle, and counts.

Invariant: a lease that a client was told of, and has neither ended nor been told the end of, is held: while it stands the
admitter must go on subtracting it, whoever is killed meanwhile. Its units leave the world before the client ends it, so that
nobody is held to what is just being given back.

Why no pod ever comes: a lease without pods is the one that nobody remembers but agents, client and admitter.
"""

import asyncio
import collections
import random
from collections.abc import Mapping

from hack.soak.world import World
from muster import client
from muster.model import admission

AT_ONCE = 3
PAUSE_SECONDS = (1.0, 6.0)
HOLD_SECONDS = (4.0, 40.0)
"""Often longer than an admitter lives."""
GRANT_SECONDS = 15.0
END_SECONDS = 15.0


class Leases:
    """Asks, holds, gives back."""

    def __init__(self, worlds: Mapping[str, World], dice: random.Random, counts: "collections.Counter[str]") -> None:
        self._worlds, self._dice, self._counts = worlds, dice, counts
        """granted; moved: given other places; not_ended: nobody answered to the end."""

    async def run(self, muster: client.Client) -> None:
        """Keep a few gangs going until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._again_and_again(muster, number))

    async def _again_and_again(self, muster: client.Client, number: int) -> None:
        turn = 0
        while True:
            await asyncio.sleep(self._dice.uniform(*PAUSE_SECONDS))
            turn += 1
            async with muster.admit(self._gang(f"gang-{number}", turn)) as stream:
                await self._hold(stream, f"{number}/{turn}")

    def _gang(self, name: str, turn: int) -> admission.Gang:
        resource = self._dice.choice([world.resource for world in self._worlds.values()])
        podset = admission.Podset(count=self._dice.randint(1, 3), request=admission.Quantity(name=resource, quantity=1))
        return admission.Gang(namespace="soak", name=name, request_id=f"turn-{turn}", podsets=(podset,))

    async def _hold(self, stream: client.GangStream, key: str) -> None:
        follower = asyncio.create_task(self._follow(stream, key))
        try:
            await asyncio.wait((follower,), timeout=GRANT_SECONDS + self._dice.uniform(*HOLD_SECONDS))
        finally:
            follower.cancel()
            (outcome,) = await asyncio.gather(follower, return_exceptions=True)
            self._note(key, ())
        if isinstance(outcome, Exception):
            raise outcome
        try:
            async with asyncio.timeout(END_SECONDS):
                await stream.end("given back")
        except TimeoutError:
            self._counts["not_ended"] += 1

    async def _follow(self, stream: client.GangStream, key: str) -> None:
        """Note what is held, as the client hears it, until the gang has ended."""
        last: admission.Leased | None = None
        async for state in stream.states():
            match state:
                case admission.Leased():
                    is_same = last is not None and state.placements == last.placements
                    self._counts["granted" if last is None else "moved"] += 0 if is_same else 1
                    last = state
                    self._note(key, state.placements)
                case _:
                    self._note(key, ())

    def _note(self, key: str, placements: tuple[admission.Placement, ...]) -> None:
        for name, world in self._worlds.items():
            units = sum(place.units for place in placements if place.node == name)
            if units:
                world.leased[key] = units
            else:
                world.leased.pop(key, None)
