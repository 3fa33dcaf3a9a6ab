"""The state file on disk: written whole, read back, and reset only while nobody has the driver open.

In: a State and a path. Out: the file that the library re-reads, a folder beside it telling who has a session, and the
environment that makes a child process load the fake.

Invariant: a file is replaced, never edited; a GPU that was lost may only come back with a reset or a reboot written down.

Why locks and not pids decide who is in: the kernel drops a lock when its process dies, however it dies.
"""

import fcntl
import os
import pathlib

from hack.fakenvml import stateform
from hack.fakenvml.build import build
from hack.fakenvml.state import State

PathLike = str | os.PathLike[str]


class InUse(Exception):
    """A reset was asked for while processes have the driver open."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        super().__init__(f"GPU is in use by pid {', '.join(str(pid) for pid in pids)}")
        self.pids = pids


class RebootNeeded(Exception):
    """A reset does not help this GPU."""


def write(state: State, path: PathLike) -> None:
    """Check the state and replace the file; raise stateform.Invalid and leave the file alone if anything is wrong."""
    target = pathlib.Path(path)
    text = stateform.to_text(state)
    recovered = _recovered_by_nothing(target, state)
    if recovered:
        raise stateform.Invalid(*recovered)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.new")
    unfinished.write_text(text, encoding="ascii")
    unfinished.replace(target)


def read(path: PathLike) -> State:
    """Read back what `write` wrote."""
    return stateform.from_text(pathlib.Path(path).read_text(encoding="ascii"))


def environment(path: PathLike) -> dict[str, str]:
    """Return what a child process needs in its environment, set before it starts: the loader reads it only then."""
    folders = [str(build().parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders), "MUSTER_FAKENVML_STATE": str(pathlib.Path(path).absolute())}


def sessions(path: PathLike) -> tuple[int, ...]:
    """List the processes that have the driver open."""
    target = pathlib.Path(path)
    folder = target.with_name(f"nvidia-sessions-of-{target.name}")  # session.c says why
    return tuple(sorted(int(file.name) for file in folder.glob("*") if _is_locked(file)))


def reset(path: PathLike, uuid: str) -> None:
    """Do what `nvidia-smi --gpu-reset` does: refuse while a session is open, else clear what a reset clears."""
    pids = sessions(path)
    if pids:
        raise InUse(pids)
    state = read(path)
    index = state.index_of(uuid)
    if state.gpus[index].needs_reboot:
        raise RebootNeeded(uuid)
    write(state.with_reset(index), path)


def _is_locked(file: pathlib.Path) -> bool:
    try:
        with file.open("r+") as session:
            fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # closed between the listing and now
        return False
    return False


def _recovered_by_nothing(target: pathlib.Path, after: State) -> list[str]:
    """Name lost GPUs that would come back without a reset or a reboot."""
    try:
        before = read(target)
    except (FileNotFoundError, stateform.Invalid):  # nothing that could be remembered
        return []
    if before.boot != after.boot:
        return []
    lost = {gpu.uuid: gpu.resets for gpu in before.gpus if gpu.lost}
    return [
        f"gpus[{index}].lost: {gpu.uuid} stays lost until with_reset or rebooted"
        for index, gpu in enumerate(after.gpus)
        if not gpu.lost and lost.get(gpu.uuid) == gpu.resets
    ]
