"""A fake NVIDIA driver: a small libnvidia-ml.so.1 for the unmodified binding, and the state file that drives it.

Typical use, with a process that has not started yet:

    state = fakenvml.profile("hgx-h100", node="n1")
    fakenvml.write(state, path)
    subprocess.Popen(..., env={**os.environ, **fakenvml.environment(path)})
    fakenvml.write(state.with_gpu(3, lost=True).with_xid(3, 79), path)   # the process sees it at its next call

Every call of the library re-reads the file if it was replaced. No file: driver not loaded. A file that cannot be
understood: every call fails with NVML_ERROR_UNKNOWN and stderr names the line and the key.
"""

from hack.fakenvml.build import build
from hack.fakenvml.mig import with_instances, with_mode, without_instance
from hack.fakenvml.profiles import MACHINES, profile
from hack.fakenvml.state import (
    NVML_CODES,
    Event,
    EventType,
    Fault,
    FieldValue,
    Gpu,
    Link,
    MigInstance,
    Process,
    State,
)
from hack.fakenvml.stateform import Invalid
from hack.fakenvml.store import InUse, RebootNeeded, environment, read, reset, sessions, write

__all__ = [
    "MACHINES",
    "NVML_CODES",
    "Event",
    "EventType",
    "Fault",
    "FieldValue",
    "Gpu",
    "InUse",
    "Invalid",
    "Link",
    "MigInstance",
    "Process",
    "RebootNeeded",
    "State",
    "build",
    "environment",
    "profile",
    "read",
    "reset",
    "sessions",
    "with_instances",
    "with_mode",
    "without_instance",
    "write",
]
