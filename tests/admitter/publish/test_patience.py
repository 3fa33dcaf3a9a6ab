"""However many pods are waited for, and for how long, an API server that does not answer is asked little."""

from hypothesis import given
from hypothesis import strategies as st

from admitter.publish.nodes import Outcome
from admitter.publish.patience import KEPT_SECONDS, MOST_ALL_SECONDS, MOST_ALONE_SECONDS, ROW, Patience


def looks(patience, pods, seconds, answer, start=0.0):
    """Want every pod released once a second, for so long; return how many requests left."""
    sent = 0
    for second in range(seconds):
        now = start + second
        for pod in pods:
            if patience.may_try(pod, now):
                sent += 1
                patience.note(pod, answer, now)
    return sent


def test_an_hour_without_an_answer_costs_a_row_in_each_rest():
    pods = [f"pod-{index}" for index in range(5000)]
    patience = Patience()
    sent = looks(patience, pods, 3600, Outcome.BUSY)
    assert sent <= ROW * (3600 / MOST_ALL_SECONDS + 4)
    later = 3600 + MOST_ALONE_SECONDS
    assert patience.may_try(pods[0], later)
    assert looks(patience, pods, 1, Outcome.DONE, later) == 5000, "the first answer wakes everybody"


def test_an_hour_of_conflicts_costs_each_pod_one_request_in_each_rest():
    pods = [f"pod-{index}" for index in range(100)]
    sent = looks(Patience(), pods, 3600, Outcome.CONFLICT)
    assert sent <= len(pods) * (3600 / MOST_ALONE_SECONDS + 8)


def test_what_fails_for_one_pod_makes_no_other_wait():
    patience = Patience()
    for second in range(600):
        if patience.may_try("broken", second):
            patience.note("broken", Outcome.BUSY, second)
        assert patience.may_try("well", second)
        patience.note("well", Outcome.DONE, second)


def test_a_first_conflict_is_tried_again_at_once():
    patience = Patience()
    patience.note("pod", Outcome.CONFLICT, 5.0)
    assert patience.may_try("pod", 5.0)
    patience.note("pod", Outcome.CONFLICT, 5.0)
    assert not patience.may_try("pod", 5.5)


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from(Outcome), st.floats(0, 60)), max_size=300))
def test_everything_may_be_tried_again_within_the_longest_rest_and_is_forgotten_in_time(steps):
    patience, now = Patience(), 0.0
    for pod, outcome, pause in steps:
        now += pause
        patience.note(str(pod), outcome, now)
        assert all(patience.may_try(str(each), now + MOST_ALONE_SECONDS) for each in range(51))
    patience.note("other", Outcome.DONE, now + KEPT_SECONDS + MOST_ALONE_SECONDS + KEPT_SECONDS)
    assert not patience._alone
