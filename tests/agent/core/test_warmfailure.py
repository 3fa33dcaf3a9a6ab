"""What a failure means, and that nobody hurries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmfailure
from agent.model.warm import Reason


def test_every_reason_has_its_patience():
    assert set(warmfailure.RETRIES) == set(Reason)


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        # Texts of containerd 1.6.20 and 2.2.9, seen in tests/agent/warmer/test_failures.py.
        (
            "UNKNOWN",
            "failed to copy: httpReadSeeker: unexpected status: 429 Too Many Requests",
            Reason.TOO_MANY_REQUESTS,
        ),
        ("UNKNOWN", "pull access denied, repository does not exist or may require authorization", Reason.UNAUTHORIZED),
        ("UNKNOWN", "unexpected status from HEAD request to http://x: 401 Unauthorized", Reason.UNAUTHORIZED),
        ("NOT_FOUND", "failed to resolve reference: not found", Reason.NOT_FOUND),
        ("FAILED_PRECONDITION", "unexpected commit digest sha256:a, expected sha256:b", Reason.CORRUPT_BLOB),
        ("UNKNOWN", "write /x: no space left on device", Reason.DISK_FULL),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: unix:/c.sock: Connection refused",
            Reason.RUNTIME_AWAY,
        ),
        ("UNKNOWN", "dial tcp 127.0.0.1:5000: connect: connection refused", Reason.REGISTRY_UNREACHABLE),
        ("UNKNOWN", "no match for platform in manifest", Reason.NO_PLATFORM),
        ("UNKNOWN", "something nobody has seen", Reason.PULL_FAILED),
    ],
)
def test_texts_mean_what_they_mean(code, text, reason):
    assert warmfailure.of_call(code, text) is reason


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ('failed to do request: Get "https://s3/x?X-Amz-Signature=s3cret": dial tcp: i/o timeout', "i/o timeout"),
        (r'unpack: Get \"https://s3/x?sig=s3cret\": EOF, Get "https://s3/y?sig=s3cret": EOF', "EOF"),
        ("URL can't contain control characters. '/x?sig=a b s3cret' (found at least ' ')", "control characters"),
        ("unexpected status from GET request to https://s3/x?sig=s3cret: 403 Forbidden", "unexpected status"),
        ("no space left on device", "no space left on device"),
    ],
)
def test_a_text_of_others_is_shown_without_what_is_signed_in_it(text, is_shown):
    assert is_shown in warmfailure.shown(text)
    assert "s3cret" not in warmfailure.shown(text)
    assert warmfailure.shown(warmfailure.shown(text)) == warmfailure.shown(text)


@given(
    reason=st.sampled_from(list(Reason)),
    tries=st.integers(1, 12),
    after=st.floats(0, 3600),
    jitter=st.floats(0, 1),
)
def test_a_host_is_left_alone_at_least_as_long_as_it_asks(reason, tries, after, jitter):
    failure = None
    for _ in range(tries):
        failure = warmfailure.failed(failure, reason, "x", host="h", now=100.0, jitter=jitter, retry_after=after)
    assert failure.attempts == tries
    assert failure.retry_at >= 100.0 + max(after, warmfailure.RETRIES[reason].first)
    assert failure.retry_at <= 100.0 + max(after, warmfailure.RETRIES[reason].longest * 1.5)
    assert bool(failure.host) == warmfailure.RETRIES[reason].is_of_host


def test_a_blob_that_is_wrong_twice_is_the_images_fault():
    first = warmfailure.failed(None, Reason.CORRUPT_BLOB, "x", host="h", now=0.0, jitter=0.0)
    second = warmfailure.failed(first, Reason.CORRUPT_BLOB, "x", host="h", now=0.0, jitter=0.0)
    assert (first.retry_at, second.retry_at) == (2.0, 3600.0)
