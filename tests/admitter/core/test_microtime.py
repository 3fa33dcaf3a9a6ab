"""The example is the promise."""

import doctest

from admitter.core import microtime


def test_examples():
    results = doctest.testmod(microtime)
    assert results.attempted > 0
    assert results.failed == 0
