"""A failing index is named only while nothing contradicts it."""

from hypothesis import given
from hypothesis import strategies as st

from agent.reader import identities


def known(*uuids, count=None):
    memory = identities.Identities(1)
    memory.counted(len(uuids) if count is None else count)
    for index, uuid in enumerate(uuids):
        memory.saw(index, identities.Identity(uuid=uuid, pci=f"pci-{uuid}"))
    return memory


def test_a_failing_index_is_whom_it_was():
    memory = known("a", "b")
    assert memory.failed(1, {}).uuid == "b"
    assert memory.answering == {"a"}
    assert memory.pci_of("b") == "pci-b"
    assert memory.uuid_at("pci-b") == "b"


def test_another_uuid_ends_the_old_ones_claim():
    memory = known("a", "b")
    generation = memory.generation
    memory.saw(1, identities.Identity(uuid="c", pci="pci-b"))
    assert memory.failed(1, {}).uuid == "c"
    assert memory.generation > generation
    assert "b" not in memory.answering


def test_a_uuid_that_answers_elsewhere_is_not_at_its_old_index():
    memory = known("a", "b", "c")
    memory.saw(0, identities.Identity(uuid="b", pci="pci-b"))
    assert memory.failed(1, {}) is None


def test_another_count_ends_all_names():
    memory = known("a", "b")
    memory.counted(1)
    assert memory.failed(0, {}) is None


def test_elimination_needs_one_index_and_one_gpu():
    kernel = {"pci-a": "a", "pci-b": "b", "pci-c": "c"}
    assert known("a", "b", count=3).failed(2, kernel) == identities.Identity(uuid="c", pci="pci-c")
    assert known("a", count=3).failed(2, kernel) is None
    assert known("a", "b", count=3).failed(2, {**kernel, "pci-d": "d"}) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcd"), st.booleans()), max_size=30))
def test_no_two_indices_have_one_name(steps):
    memory = identities.Identities(1)
    memory.counted(4)
    for index, uuid, answers in steps:
        if answers:
            memory.saw(index, identities.Identity(uuid=uuid, pci=f"pci-{uuid}"))
        else:
            memory.failed(index, {})
    names = [found.uuid for index in range(4) if (found := memory.failed(index, {})) is not None]
    assert len(names) == len(set(names))
