"""What every plane says of a world of `tests/nodeworld.py`: the input of the core, made from the truth and what hides it."""

import dataclasses

from agent.model import planes
from muster.model import codec, kube
from muster.model.reading import Known, Unknown
from tests import builders
from tests.builders import a_gpu, a_lost_gpu
from tests.nodeworld import DRIVER, GPUS, STATES


def observation(world):
    """Return what all planes say of it."""
    offers = {name: tuple(world.offered(name)) for name in world.promised}
    devices = tuple(_gpu(world, number) for number in range(GPUS))
    whole = builders.a_node(
        GPUS,
        at=world.at,
        boot=Known(world.boot),
        nvml=Known(planes.Nvml(devices=devices)),
        kubelet=builders.a_kubelet(
            {name: ids for name, ids in offers.items() if ids},
            tuple(_listed(world, pod) for pod in world.pods.values()),
            started_at=Known(world.kubelet_at),
        ),
        node_object=builders.a_node_object(
            {
                name: (max(len(world.promised[name]), world.allocatable(name)), world.allocatable(name))
                for name in offers
            },
            labels=codec.freeze(world.labels),
        ),
        pods=Known(tuple(_bound(world, pod) for pod in world.pods.values())),
        plugins=Known((builders.a_plugin(started_at=Known(world.plugin_at), process_alive=Known(world.is_plugin_up)),)),
        dra=Known(_dra(world)),
        rejections=tuple(_rejection(world, *each) for each in enumerate(world.refused)),
    )
    return _blinded(world, whole)


def _gpu(world, number):
    gpu = world.gpus[number]
    if gpu.error:
        return a_lost_gpu(number, gpu.error)
    mig = planes.Mig(current=gpu.cut is not None, pending=gpu.cut is not None, instances=gpu.cut or ())
    action = Unknown("NOT_SUPPORTED") if world.silent is None else Known(world.silent)
    facts = {"mig": Known(mig), "recovery_action": action, "xids": Known(gpu.xids), **STATES[gpu.state][1]}
    if world.is_driver_mute():
        facts["recovery_action"] = action
    if gpu.cut and gpu.state == "used by nobody's process":
        facts["processes"] = Known((builders.a_process(gi=gpu.cut[0].gi, ci=0),))
    if world.unchecked:
        facts[world.unchecked] = Unknown("TIMEOUT")
    return a_gpu(number, **facts)


def _bound(world, pod):
    ends = builders.after(world.at - 30) if pod.is_ending else None
    units = 0 if pod.resource == DRIVER else pod.units
    return builders.a_pod(
        pod.name, units=units, resource=pod.resource, created_at=builders.after(pod.at), deletion_at=ends
    )


def _listed(world, pod):
    if pod.resource != DRIVER:
        return builders.a_listed_pod(pod.name, *pod.holds, resource=pod.resource)
    devices = tuple(planes.ClaimDevice(driver=DRIVER, pool="p", device=text.lower()) for text in pod.holds)
    claims = (planes.Claim(namespace="ml", name=pod.name, devices=devices),) if devices else ()
    container = planes.ListedContainer(name="main", devices=(), claims=claims)
    return planes.ListedPod(namespace="ml", name=pod.name, containers=(container,))


def _dra(world):
    if world.slices is None:
        return kube.Dra()
    devices = tuple(kube.DraDevice(name=f"gpu-{n}", uuid=f"GPU-{n}") for n in sorted(world.slices))
    driver = kube.DraDriver(name=DRIVER, registration_socket_present=Known(True), answering=Known(True))
    return kube.Dra(drivers=(driver,), slices=(kube.DraSlice(driver=DRIVER, pool="p", devices=devices),))


def _rejection(world, number, item):
    name = f"r{number}"
    return kube.Rejection(
        at=builders.after(item.at),
        pod=f"ml/{name}",
        uid=name,
        reason="UnexpectedAdmissionError",
        message=item.text.format(item.left),
    )


def _blinded(world, observation):
    for plane, reason in world.unread.items():
        field = {"allocatable": "allocatable", "listed": "pods"}.get(plane)
        if field is None:
            observation = dataclasses.replace(observation, **{plane: Unknown(reason)})
        elif isinstance(observation.kubelet, Known):
            kubelet = dataclasses.replace(observation.kubelet.value, **{field: Unknown(reason)})
            observation = dataclasses.replace(observation, kubelet=Known(kubelet))
    return observation
