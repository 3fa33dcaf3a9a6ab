"""A sight is wrong once for each time, and never sooner than the agent is allowed."""

import dataclasses
import datetime

from hack.soak.oracle import Bound
from hack.soak.watch import Kind, Patience, Sight
from muster.model import codec
from muster.model.admission import NodeCapacity
from muster.model.reading import Known
from muster.model.report import NodeReport, ResourceReport, Topology, Verdict

GPU = "nvidia.com/gpu"
AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
ALL, NONE = Bound(most=8, least=8, why="well"), Bound(most=0, least=0, why="broken")


def shown(units, **others):
    report = NodeReport(node="a", taken_at=AT, verdict=Verdict.OK, resources=codec.freeze({}))
    return NodeCapacity(
        node="a",
        report=report,
        topology=Topology(generation=0),
        age_seconds=0.0,
        stale=False,
        admissible=codec.freeze({GPU: units, **others}),
    )


def a_sight():
    sight = Sight(GPU, Patience(fall=6, rise=12, longest=60))
    sight.set_bound(ALL, 0.0)
    sight.hear(shown(8))
    sight.answered(0.0)
    return sight


def kinds(wrong):
    return [item.kind for item in wrong]


def test_a_number_may_stay_for_as_long_as_the_agent_is_allowed_and_is_counted_once():
    """Without a cycle that has ended, that is the longest time of all."""
    sight = a_sight()
    sight.set_bound(NONE, 100.0)
    assert sight.judge(159.0) == []
    assert kinds(sight.judge(161.0)) == [Kind.WRONG_WAY]
    assert sight.judge(162.0) == []


def test_a_number_that_rises_above_what_holds_is_wrong_at_once():
    """No allowance: nothing that was in force lately allows it."""
    sight = a_sight()
    sight.set_bound(NONE, 100.0)
    sight.hear(shown(0))
    assert sight.judge(200.0) == []
    sight.hear(shown(1))
    assert kinds(sight.judge(200.1)) == [Kind.WRONG_WAY]


def test_a_number_that_stays_low_is_counted_and_a_dip_is_not():
    """Low from the first look at it, for longer than allowed."""
    sight = a_sight()
    sight.hear(shown(0))
    assert sight.judge(100.0) == []
    sight.hear(shown(8))
    assert sight.judge(150.0) == []
    sight.hear(shown(0))
    assert sight.judge(151.0) == []
    assert kinds(sight.judge(212.0)) == [Kind.TOO_LOW]


def test_a_resource_that_nobody_offers_admits_nothing():
    """A ghost's units are wrong at once."""
    sight = a_sight()
    sight.hear(shown(8, **{"nvidia.com/mig-7g.80gb": 7}))
    assert kinds(sight.judge(10.0)) == [Kind.WRONG_WAY]


def test_who_is_not_heard_is_not_low():
    """While no admitter answers, nobody says anything."""
    sight = a_sight()
    sight.lose()
    assert sight.judge(100.0) == []
    assert sight.judge(300.0) == []


def test_a_node_that_is_low_in_the_life_of_every_admitter_is_counted():
    """One that is killed every 20 s does not hide it: the clock stands while nobody answers, and goes on."""
    sight = a_sight()
    found = []
    for life in range(6):
        began = 100.0 + 30 * life
        sight.answered(began)
        sight.hear(shown(0))
        found += [*sight.judge(began), *sight.judge(began + 20)]
        sight.lose()
        found += sight.judge(began + 25)
    assert kinds(found) == [Kind.TOO_LOW]


def test_a_node_that_no_admitter_knows_any_more_is_counted():
    """An agent that never comes back to an admitter that answers offers nothing."""
    sight = a_sight()
    sight.lose()
    sight.answered(100.0)
    assert sight.judge(100.0) == []
    assert kinds(sight.judge(161.0)) == [Kind.TOO_LOW]


def test_a_node_that_comes_back_under_each_admitter_is_not_low():
    """What was low before is forgotten as soon as it is right once."""
    sight = a_sight()
    found = []
    for life in range(6):
        began = 100.0 + 30 * life
        sight.answered(began)
        sight.hear(shown(0))
        found += [*sight.judge(began), *sight.judge(began + 10)]
        sight.hear(shown(8))
        found += sight.judge(began + 11)
        sight.lose()
    assert found == []


def holding(units, leased):
    return dataclasses.replace(shown(units), leased=codec.freeze({GPU: leased}), report=reporting())


def reporting():
    resource = ResourceReport(
        verdict=Verdict.OK, **{name: Known(8) for name in ("capacity", "allocatable", "advertised", "present")}
    )
    return dataclasses.replace(shown(8).report, resources=codec.freeze({GPU: resource}))


def test_units_that_a_gang_holds_must_go_on_being_subtracted():
    """Of every admitter that there is; once each time, and only after what a change may take."""
    sight = a_sight()
    sight.leased = 3
    sight.hear(holding(5, 3))
    assert sight.judge(100.0) == []
    sight.hear(holding(8, 0))
    assert sight.judge(101.0) == []
    assert kinds(sight.judge(162.0)) == [Kind.LOOSENED]
    assert sight.judge(163.0) == []
