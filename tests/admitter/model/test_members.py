"""A gang's members, reported one by one."""

import hypothesis
from hypothesis import strategies as st

from admitter.model import members as module
from admitter.model.gang import Member
from admitter.model.members import Members

REPORTS = st.lists(st.builds(Member, podset=st.just("main"), uid=st.sampled_from("abcdef"), node=st.sampled_from("xy")))


def plainly(known, member, most):
    """Return what `joined` says, the slow way."""
    others = tuple(each for each in known if each.uid != member.uid)
    return known if member in known else (*others, member)[-most:]


@hypothesis.given(REPORTS, st.integers(1, 4))
def test_members_are_those_of_a_tuple_that_is_copied_each_time(reports, most):
    fast, slow, before = Members(), (), []
    for member in reports:
        before.append((fast, slow))
        fast, slow = fast.joined(member, most), plainly(slow, member, most)
        assert fast == slow
        assert slow == fast
        assert (len(fast), fast[-1]) == (len(slow), slow[-1])
    assert all(old == was for old, was in before), "what was, stays"


@hypothesis.given(REPORTS, REPORTS, REPORTS)
def test_two_that_grow_from_one_know_nothing_of_each_other(shared, left, right):
    def grown(members, reports):
        for member in reports:
            members = members.joined(member, 100)
        return members

    root = grown(Members(), shared)
    one, other = grown(root, left), grown(root, right)
    assert one == grown(Members(tuple(root)), left)
    assert other == grown(Members(tuple(root)), right)
    assert (one == other) == (tuple(one) == tuple(other))


def test_ten_thousand_pods_reported_one_by_one_are_not_copied(monkeypatch):
    copies, real = [], Members.__init__

    def counted(self, members=()):
        copies.append(members)
        real(self, members)

    monkeypatch.setattr(module.Members, "__init__", counted)
    members = Members()
    for index in range(10_000):
        members = members.joined(Member(podset="main", uid=f"u{index}", node="n1"), 40_001)
    assert (len(members), len(copies)) == (10_000, 1)


def test_a_gang_that_is_replaced_for_ever_is_copied_once_for_as_many_as_are_kept():
    members = Members()
    for index in range(1000):
        members = members.joined(Member(podset="main", uid=f"u{index}", node="n1"), 10)
        assert len(members._line) <= 22
    assert [member.uid for member in members] == [f"u{index}" for index in range(990, 1000)]
