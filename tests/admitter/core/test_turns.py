"""Turns: nobody is pushed out by what another namespace names."""

from hypothesis import given
from hypothesis import strategies as st

from admitter.core import turns

NAMES = st.sets(st.tuples(st.sampled_from("abcd"), st.sampled_from("123456789")))


@given(NAMES, st.integers(0, 40), st.integers(1, 10))
def test_no_namespace_has_more_than_its_share_and_none_waits_for_anothers_second(named, most, most_each):
    found = turns.chosen(named, most=most, most_each=most_each)
    count = {namespace: sum(each == namespace for each, _ in found) for namespace, _ in named}
    wanted = {each: min(most_each, sum(own == each for own, _ in named)) for each, _ in named}
    assert len(found) == len(set(found)) == min(most, sum(wanted.values()))
    assert set(found) <= named
    assert all(count[each] <= wanted[each] for each in count)
    fewest = min((count[each] for each in count if count[each] < wanted[each]), default=most)
    assert max(count.values(), default=0) <= fewest + 1


def test_what_one_namespace_names_keeps_no_other_out():
    flood = {("a", f"mig-manager-{number:03}") for number in range(500)}
    assert ("gpu-operator", "layouts") in turns.chosen(flood | {("gpu-operator", "layouts")}, most=2, most_each=2)
