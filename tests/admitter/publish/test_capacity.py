"""A watcher is told each state once, however passes and changes of the view fall."""

import contextlib
import dataclasses

from admitter.publish.capacity import CapacityBoard
from tests.admitter.clusters import a_node, a_view


class World:
    """A board whose newest view may be ahead of the last pass."""

    def __init__(self, *nodes):
        self.view = a_view(*nodes)
        self.board = CapacityBoard(lambda: self.view)

    def moved(self, name):
        """Have a node say something new."""
        state = self.view.nodes[name]
        nodes = {**self.view.nodes, name: dataclasses.replace(state, sequence=state.sequence + 1)}
        self.view = dataclasses.replace(self.view, nodes=nodes)

    def decide(self):
        """End a decision pass on the newest view."""
        self.board.update(self.view, {})


async def told(changes):
    response = await anext(changes)
    return [node.node for node in response.nodes]


async def test_what_the_full_state_has_said_already_is_not_said_again_by_the_pass_that_follows():
    """The watch begins before any pass has seen the nodes: the pass calls them changes, and they are none."""
    world = World(a_node("n1"), a_node("n2"))
    async with contextlib.aclosing(world.board.watch(frozenset())) as changes:
        assert await told(changes) == ["n1", "n2"]
        world.decide()
        world.moved("n1")
        world.decide()
        assert await told(changes) == ["n1"]


async def test_what_changes_back_is_said():
    """A node that is barred or stale and then not is two changes."""
    world = World(a_node("n1"))
    async with contextlib.aclosing(world.board.watch(frozenset())) as changes:
        assert await told(changes) == ["n1"]
        world.view = dataclasses.replace(world.view, barred={"n1": "a promise was broken"})
        world.decide()
        assert await told(changes) == ["n1"]
        world.view = dataclasses.replace(world.view, barred={})
        world.decide()
        assert await told(changes) == ["n1"]


async def test_a_node_that_went_and_came_back_is_said():
    world = World(a_node("n1"))
    full = world.view
    async with contextlib.aclosing(world.board.watch(frozenset())) as changes:
        assert await told(changes) == ["n1"]
        world.decide()
        world.view = dataclasses.replace(full, nodes={})
        world.decide()
        assert list((await anext(changes)).removed) == ["n1"]
        world.view = full
        world.decide()
        assert await told(changes) == ["n1"]
