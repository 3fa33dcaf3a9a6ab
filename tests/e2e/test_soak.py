"""The soak, short: about eighty random injections on four nodes, held against the oracle (hack/soak, docs/soak.md).

MUSTER_SOAK_SEED repeats a run, as far as processes repeat; what was wrong is kept as a capture, whose path is in the message.
"""

import asyncio
import json
import os
import secrets

import pytest

from hack.soak import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

INJECTIONS, NODES, MINUTES = 80, 4, 4.0


def test_no_random_fault_raises_a_number_or_ends_a_program(tmp_path):
    """Nothing above the truth, no crash; the seed and the captures of what was wrong are in the message."""
    seed = int(os.environ.get("MUSTER_SOAK_SEED", secrets.randbits(32)))
    figures = asyncio.run(scaled.run(INJECTIONS, MINUTES, NODES, seed, tmp_path / "wrong"))
    text = json.dumps(figures, indent=1)
    assert figures["injections"] >= INJECTIONS / 4, text
    assert figures["wrong_way"] == 0, text
    assert figures["crashes"] == 0, text
