"""Whose a process is, from its cgroup path.

Input: the path. Output: Known(pod UID), Known("") for no pod's, or Unknown where it is a pod's that cannot be named.

Why by the word kubepods: every kubelet cgroup driver and runtime keeps it in the path, whatever stands around it
(kubelet.slice in kind, a systemd scope, plain cgroupfs).
"""

import re

from muster.model.reading import Known, Reading, Unknown

_SYSTEMD = re.compile(r"-pod(?P<uid>[^/]+?)\.slice")
_PLAIN = re.compile(r"/pod(?P<uid>[^/]+)")


def owner_of(path: str) -> Reading[str]:
    """Return the UID of the pod.

    >>> owner_of("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/cri-containerd-1.scope")
    Known(value='a-b')
    >>> owner_of("/kubepods/besteffort/poda-b/1"), owner_of("/user.slice/user-1000.slice")
    (Known(value='a-b'), Known(value=''))
    """
    if "kubepods" not in path:
        return Known("")
    if match := _SYSTEMD.search(path):
        return Known(match["uid"].replace("_", "-"))
    if match := _PLAIN.search(path):
        return Known(match["uid"])
    return Unknown("CannotParse", path[:200])
