"""Islands, cliques and generations."""

import pytest

from agent.core import topology
from agent.model import planes
from agent.model.planes import FabricState, FabricSummary, LinkRemote, LinkState
from muster.model.reading import Known, Unknown
from muster.model.report import Topology
from tests import builders

NONE = Topology(generation=0)
CLUSTER = "8b1c5a6e-0000-0000-0000-000000000001"


def described(*gpus, previous=NONE):
    return topology.topology(Known(planes.Nvml(devices=gpus)), previous)


def islands(*gpus):
    return {gpu.uuid: gpu.island for gpu in described(*gpus).gpus}


def links(*peers, state=LinkState.ACTIVE):
    """Links to GPUs by number, or to a switch for None."""
    return Known(
        tuple(
            planes.NvLink(link=number, state=state, remote=Known(LinkRemote.SWITCH))
            if peer is None
            else planes.NvLink(
                link=number,
                state=state,
                remote=Known(LinkRemote.GPU),
                remote_pci=Known(f"00000000:{0x10 + peer:02X}:00.0"),
            )
            for number, peer in enumerate(peers)
        )
    )


def test_gpus_on_switches_are_one_island():
    gpus = [builders.a_gpu(number, nvlinks=links(None, None)) for number in range(4)]
    assert islands(*gpus) == dict.fromkeys([f"GPU-{n}" for n in range(4)], "GPU-0")


def test_bridged_pairs_are_islands_of_two():
    pairs = {0: 2, 2: 0, 1: 3, 3: 1}
    gpus = [builders.a_gpu(number, nvlinks=links(peer, peer)) for number, peer in pairs.items()]
    assert islands(*gpus) == {"GPU-0": "GPU-0", "GPU-2": "GPU-0", "GPU-1": "GPU-1", "GPU-3": "GPU-1"}


def test_a_mesh_that_is_not_complete_is_no_island():
    ring = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}
    gpus = [builders.a_gpu(number, nvlinks=links(*peers)) for number, peers in ring.items()]
    assert set(islands(*gpus).values()) == {""}


def test_a_link_that_only_one_end_reports_joins_nobody():
    assert set(islands(builders.a_gpu(0, nvlinks=links(1)), builders.a_gpu(1, nvlinks=links())).values()) == {""}


@pytest.mark.parametrize("state", [LinkState.INACTIVE, LinkState.TRAFFIC_DISABLED])
def test_an_inactive_link_takes_the_gpu_out_of_the_island(state):
    sick = builders.a_gpu(0, nvlinks=links(None, state=state))
    well = [builders.a_gpu(number, nvlinks=links(None)) for number in (1, 2)]
    assert islands(sick, *well) == {"GPU-0": "", "GPU-1": "GPU-1", "GPU-2": "GPU-1"}


def test_links_that_were_not_read_join_nobody():
    assert set(islands(builders.a_gpu(0), builders.a_gpu(1, nvlinks=Unknown("TIMEOUT"))).values()) == {""}


def fabric(**changes):
    facts = {"state": FabricState.COMPLETED, "status": Known("success"), "cluster_uuid": Known(CLUSTER)}
    return planes.Fabric(**{**facts, "clique": Known(3), **changes})


@pytest.mark.parametrize(
    ("changes", "clique"),
    [
        pytest.param({}, f"{CLUSTER}.3", id="completed, success, shared"),
        pytest.param({"summary": Known(FabricSummary.HEALTHY)}, f"{CLUSTER}.3", id="healthy"),
        pytest.param({"summary": Known(FabricSummary.LIMITED_CAPACITY)}, f"{CLUSTER}.3", id="limited is not unhealthy"),
        pytest.param({"summary": Known(FabricSummary.UNHEALTHY)}, "", id="unhealthy"),
        pytest.param({"cluster_uuid": Known("00000000-0000-0000-0000-000000000000")}, "", id="shared with nobody"),
        pytest.param({"state": FabricState.IN_PROGRESS}, "", id="not completed"),
        pytest.param({"status": Known("ERROR_UNKNOWN")}, "", id="no success"),
        pytest.param({"status": Unknown("TIMEOUT")}, "", id="status not read"),
    ],
)
def test_a_clique_needs_a_whole_healthy_shared_fabric(changes, clique):
    assert topology.clique_of(builders.a_gpu(0, fabric=Known(fabric(**changes)))) == clique


def test_the_generation_rises_only_with_a_static_fact():
    first = described(builders.a_gpu(0, nvlinks=links(None)), builders.a_gpu(1, nvlinks=links(None)))
    busy = builders.a_gpu(0, nvlinks=links(None), processes=Known((builders.a_process(),)), temperature_c=Known(70))
    again = described(builders.a_gpu(1, nvlinks=links(None)), busy, previous=first)
    fewer = described(builders.a_gpu(0, nvlinks=links(None)), previous=again)
    assert (first.generation, again.generation, fewer.generation) == (1, 1, 2)


def test_silence_says_nothing_about_wiring():
    first = described(builders.a_gpu(0, nvlinks=links(1)), builders.a_gpu(1, nvlinks=links(0)))
    assert topology.topology(Unknown("TIMEOUT"), first) == first
    silent = described(builders.a_lost_gpu(0), builders.a_gpu(1), previous=first)
    assert {gpu.uuid: gpu.island for gpu in silent.gpus} == {"GPU-0": "GPU-0", "GPU-1": "GPU-0"}
    assert silent == first


def test_an_island_keeps_its_name_while_its_first_gpu_is_silent():
    gpus = [builders.a_gpu(number, nvlinks=links(None)) for number in range(3)]
    first = described(*gpus)
    assert described(builders.a_lost_gpu(0), *gpus[1:], previous=first) == first


def test_nothing_known_is_generation_0():
    assert topology.topology(Unknown("NotCollected"), NONE) == NONE
