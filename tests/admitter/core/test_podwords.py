"""A gang's word on its pod: on change, bounded, and never the same one twice."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from admitter.core import podwords
from admitter.core.podwords import AGAIN_SECONDS, BURST, PER_SECOND, Word
from admitter.model.cluster import Condition
from admitter.model.hold import Told
from muster.model import labels
from tests.admitter.grouppods import a_pod

POD = a_pod()


def a_word(reason="NotEnoughUnits", summary="needs 16 GPUs", pod=POD, namespace="team-a"):
    return Word(namespace=namespace, pod=pod, owner=None, told=Told(reason=reason, summary=summary))


def written(words, now):
    words, due = podwords.due(words, now)
    return words, [(key, word.told.reason, word.told.summary) for key, word in due]


def test_a_word_is_due_once():
    words = podwords.said(podwords.empty(0), {"team-a/g": a_word()})
    words, due = written(words, 0)
    assert due == [("team-a/g", "NotEnoughUnits", "needs 16 GPUs")]
    words = podwords.said(words, {"team-a/g": a_word()})
    assert written(words, 100)[1] == []


def test_another_reason_is_due_at_once_and_other_words_wait():
    words, _ = written(podwords.said(podwords.empty(0), {"team-a/g": a_word()}), 0)
    words = podwords.said(words, {"team-a/g": a_word(summary="needs 16 GPUs; 8 admissible")})
    words, due = written(words, 1)
    assert due == []
    words = podwords.said(words, {"team-a/g": a_word(summary="needs 16 GPUs; 9 admissible")})
    words, due = written(words, AGAIN_SECONDS)
    assert due == [("team-a/g", "NotEnoughUnits", "needs 16 GPUs; 9 admissible")], "only the newest"
    words = podwords.said(words, {"team-a/g": a_word(reason="BehindOthers")})
    assert written(words, AGAIN_SECONDS + 1)[1] == [("team-a/g", "BehindOthers", "needs 16 GPUs")]


def test_what_is_said_and_taken_back_is_not_written():
    words, _ = written(podwords.said(podwords.empty(0), {"team-a/g": a_word()}), 0)
    words = podwords.said(words, {"team-a/g": a_word(summary="other")})
    words = podwords.said(words, {"team-a/g": a_word()})
    assert written(words, AGAIN_SECONDS)[1] == []


def test_what_the_leader_before_us_wrote_stands():
    stands = Condition(type=labels.PLACED.full, status="False", reason="NotEnoughUnits", message="needs 16 GPUs")
    pod = dataclasses.replace(POD, conditions=(stands,))
    words = podwords.said(podwords.empty(0), {"team-a/g": a_word(pod=pod)})
    assert written(words, 0)[1] == []
    words = podwords.said(words, {"team-a/g": a_word(reason="Released", pod=pod)})
    assert len(written(words, 0)[1]) == 1


def test_another_pod_is_told_too():
    words, _ = written(podwords.said(podwords.empty(0), {"team-a/g": a_word()}), 0)
    words = podwords.said(words, {"team-a/g": a_word(pod=a_pod("other"))})
    assert len(written(words, 1)[1]) == 1


def test_a_namespace_in_which_all_words_change_all_the_time_makes_nobody_else_wait():
    """300 gangs of an early name change their reasons each second; one of a late name says something once."""
    words, heard = podwords.empty(0), []
    for second in range(10):
        loud = {f"a/{gang}": a_word(f"R{second}", namespace="a") for gang in range(300)}
        words = podwords.said(words, loud if second != 5 else {**loud, "z/g": a_word(namespace="z")})
        words, due = written(words, second)
        heard += [second for key, *_ in due if key == "z/g"]
    assert heard == [5]


def test_who_waits_longest_of_a_namespace_is_served_first_though_it_says_something_else_meanwhile():
    words = podwords.said(podwords.empty(0), {f"a/{gang:02}": a_word(namespace="a") for gang in range(BURST)})
    words, _ = written(words, 0)
    words = podwords.said(words, {"a/90": a_word("One", namespace="a")})
    words = podwords.said(words, {"a/10": a_word("Two", namespace="a")})
    words = podwords.said(words, {"a/90": a_word("Three", namespace="a")})
    words, due = written(words, 1 / PER_SECOND)
    assert due == [("a/90", "Three", "needs 16 GPUs")]
    assert written(words, 2 / PER_SECOND)[1] == [("a/10", "Two", "needs 16 GPUs")]


def test_namespaces_take_turns():
    words = podwords.said(
        podwords.empty(0), {f"{name}/{gang}": a_word(namespace=name) for name in "abc" for gang in range(30)}
    )
    served = []
    for moment in range(60):
        words, due = written(words, moment / PER_SECOND)
        served += [key[0] for key, *_ in due]
    assert max(served[:60].count(name) for name in "abc") == min(served[:60].count(name) for name in "abc") == 20
    assert served[:6] == list("abcabc")


@given(
    events=st.lists(
        st.tuples(st.floats(0, 5), st.integers(0, 40), st.sampled_from("abc"), st.sampled_from("xyz")), max_size=80
    )
)
def test_however_much_is_said_little_is_written_and_the_newest_word_arrives(events):
    words, now, count, newest, standing = podwords.empty(0), 0.0, 0, {}, {}
    for pause, gang, reason, summary in events:
        now += pause
        key = f"team-a/{gang}"
        words, newest[key] = podwords.said(words, {key: a_word(reason, summary)}), (reason, summary)
        words, due = written(words, now)
        count += len(due)
        standing |= {key: (reason, summary) for key, reason, summary in due}
        assert count <= BURST + now * PER_SECOND + 1
    for _ in range(60):
        now += 1
        words, due = written(words, now)
        standing |= {key: (reason, summary) for key, reason, summary in due}
    assert standing == newest
