"""In which order the benchmark breaks GPUs."""

from hack.bench import fault_latency


def test_nodes_alternate_and_every_gpu_has_its_turn():
    order = list(fault_latency._alternating(("a", "b"), 16))
    assert order[:4] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert len(set(order)) == 16


def test_it_begins_anew_when_every_gpu_was_broken():
    order = list(fault_latency._alternating(("a", "b"), 20))
    assert order[16:] == order[:4]
