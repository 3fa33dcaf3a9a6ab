"""Build the values that tests talk about: a healthy node, changed in one place at a time.

`a_node(gpus=8)` is an observation of a healthy HGX-like node; everything else takes keyword arguments that say what is
different. Ids are readable: GPU 3 is `GPU-3`, instance 1 on it `MIG-3-1`.
"""

import dataclasses
import datetime

from agent.core.judge import judge
from agent.model import planes
from agent.model.history import History
from agent.model.policy import Policy
from muster.model import codec, kube
from muster.model.reading import Known

NOW = datetime.datetime(2026, 12, 1, 10, 0, tzinfo=datetime.UTC)
LONG_AGO = NOW - datetime.timedelta(days=7)
WHOLE = "nvidia.com/gpu"


def after(seconds):
    """Return an instant so many seconds after NOW."""
    return NOW + datetime.timedelta(seconds=seconds)


def a_gpu(number, **changes):
    """Return a healthy GPU outside MIG mode."""
    facts = {
        "uuid": f"GPU-{number}",
        "pci": Known(f"0000:{0x10 + number:02x}:00.0"),
        "index": Known(number),
        "product": Known("NVIDIA H100 80GB HBM3"),
        "mig": Known(planes.Mig(current=False, pending=False, instances=())),
        "recovery_action": Known(planes.RecoveryAction.NONE),
        "processes": Known(()),
    }
    return planes.Gpu(**{**facts, **changes})


def a_lost_gpu(number, error="GPU_IS_LOST"):
    """Return a GPU whose identifying query fails."""
    return planes.Gpu(uuid=f"GPU-{number}", error=error)


def a_mig_gpu(number, profiles, **changes):
    """Return a GPU in MIG mode, cut into these profiles."""
    instances = tuple(
        planes.MigInstance(uuid=f"MIG-{number}-{place}", gi=place + 1, ci=0, profile=profile)
        for place, profile in enumerate(profiles)
    )
    return a_gpu(number, mig=Known(planes.Mig(current=True, pending=True, instances=instances)), **changes)


def a_process(pid=1000, cgroup="/user.slice", **changes):
    """Return a process on a GPU; by default one of nobody's pods."""
    return planes.Process(pid=pid, cgroup=Known(cgroup), **changes)


def pod_cgroup(uid):
    """Return the cgroup path of a pod's process."""
    return f"/kubepods/burstable/pod{uid}/1"


def ids(resource, *texts):
    """Return one entry of the kubelet's device lists."""
    return planes.DeviceIds(resource=resource, ids=texts)


def a_pod(name, *, units=1, resource=WHOLE, phase=kube.PodPhase.RUNNING, **changes):
    """Return a pod of namespace `ml` bound to the node, with UID `uid-NAME`."""
    facts = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "phase": phase}
    return kube.Pod(**{**facts, "requests": codec.freeze({resource: units}), **changes})


def a_listed_pod(name, *texts, resource=WHOLE, **changes):
    """Return that pod as the kubelet lists it, with the devices it holds."""
    containers = (planes.ListedContainer(name="main", devices=(ids(resource, *texts),) if texts else ()),)
    return planes.ListedPod(**{"namespace": "ml", "name": name, "containers": containers, **changes})


def a_kubelet(allocatable, pods=(), **changes):
    """Return a kubelet that has been up for a week; `allocatable` is resource -> ids."""
    entries = tuple(ids(resource, *texts) for resource, texts in allocatable.items())
    facts = {"started_at": Known(LONG_AGO), "allocatable": Known(entries), "pods": Known(tuple(pods))}
    return Known(planes.Kubelet(**{**facts, **changes}))


def a_node_object(counts, **changes):
    """Return a Node; `counts` is resource -> count or (capacity, allocatable)."""
    both = {name: count if isinstance(count, tuple) else (count, count) for name, count in counts.items()}
    return Known(
        kube.NodeObject(
            **{
                "capacity": codec.freeze({name: capacity for name, (capacity, _) in both.items()}),
                "allocatable": codec.freeze({name: allocatable for name, (_, allocatable) in both.items()}),
                **changes,
            }
        )
    )


def a_plugin(**changes):
    """Return a device plugin that lives and is registered."""
    facts = {
        "resource_prefix": "nvidia.com",
        "process_alive": Known(True),
        "socket_present": Known(True),
        "started_at": Known(after(-86400)),
    }
    return kube.Plugin(**{**facts, **changes})


def a_node(gpus=8, *, at=0, api=True, **changes):
    """Return what all planes say about a healthy node `at` seconds after NOW."""
    uuids = tuple(f"GPU-{number}" for number in range(gpus))
    facts = {
        "node": "gpu-a1",
        "taken_at": after(at),
        "boot": Known(planes.Boot(id="boot-1", at=LONG_AGO)),
        "nvml": Known(planes.Nvml(devices=tuple(a_gpu(number) for number in range(gpus)))),
        "kubelet": a_kubelet({WHOLE: uuids}),
        "plugins": Known((a_plugin(),)),
    }
    if api:
        facts |= {"node_object": a_node_object({WHOLE: gpus}), "pods": Known(())}
    return planes.Observation(**{**facts, **changes})


def with_gpus(observation, *replaced):
    """Return the observation with the GPUs of the same UUID replaced."""
    by_uuid = {gpu.uuid: gpu for gpu in replaced}
    nvml = observation.nvml.value
    devices = tuple(by_uuid.get(gpu.uuid, gpu) for gpu in nvml.devices)
    return dataclasses.replace(observation, nvml=Known(dataclasses.replace(nvml, devices=devices)))


def reports_of(observation, times, *, api=True):
    """Return the report after each sample of the same observation."""
    history, reports = History(), []
    for at in times:
        sample = dataclasses.replace(observation, taken_at=after(at))
        history, report = judge(history, sample, Policy(), api_server=api)
        reports.append(report)
    return reports


def numbers_of(report):
    return {name: row_of(resource) for name, resource in report.resources.items()}


def row_of(resource):
    numbers = (resource.admit_strict, resource.admit_lenient, resource.pick_risk)
    return (resource.verdict.value, *(reading.value if isinstance(reading, Known) else None for reading in numbers))
