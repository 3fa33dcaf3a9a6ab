"""The MPS control daemon: whether it lives, and whether it says it is ready (faults.md F3).

A daemon in a pod is the node's only where the node's own folder says that it is ready: a job may run one for itself, and must
not have the memory that others hold overlooked on every GPU (faults.md E6).
"""

import pathlib

from agent.model import planes
from agent.reader import processes
from muster.model.reading import Known, Reading, Unknown

_DAEMON = "nvidia-cuda-mps-control"


def read(proc_root: pathlib.Path, mps_root: pathlib.Path) -> Reading[planes.Mps]:
    """Return the daemon's state."""
    match processes.list_named(proc_root, (_DAEMON,)):
        case Known(found):
            ready = _ready(mps_root)
            daemons = [daemon for daemon in found if ready != Known(value=False) or not daemon.is_in_pod]
            return Known(
                planes.Mps(
                    daemon_alive=Known(bool(daemons)),
                    ready=ready,
                    started_at=Known(daemons[-1].started_at) if daemons else Unknown("NotFound"),
                )
            )
        case Unknown() as unknown:
            return unknown


def _ready(mps_root: pathlib.Path) -> Reading[bool]:
    """The device plugin's daemon writes `.ready`; one that was started by hand has at least its control pipe."""
    try:
        return Known((mps_root / ".ready").exists() or any(mps_root.glob("**/pipe/control")))
    except OSError as error:
        return Unknown("Unreadable", str(error))
