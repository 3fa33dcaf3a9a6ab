"""The garbage collector is rare, not off."""

import gc
import subprocess
import sys

from admitter import collector


def test_cycles_are_still_collected():
    """In a process of its own, since thresholds are the process's."""
    program = (
        "import gc, weakref\n"
        "from admitter import collector\n"
        "collector.relax()\n"
        "class Ring: pass\n"
        "ring = Ring(); ring.self = ring; gone = weakref.ref(ring); del ring\n"
        "heap = [[] for _ in range(2 * collector.YOUNG)]\n"
        "assert gone() is None\n"
        "print(gc.get_threshold(), gc.get_freeze_count() > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"{(collector.YOUNG, collector.MIDDLE, collector.OLD)} True"
    assert gc.isenabled()
