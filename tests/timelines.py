"""Hypothesis strategies for nodes whose planes agree or not, and for timelines of them: whole, cut, shared, claimed."""

from hypothesis import strategies as st

from agent.model import planes
from muster.model import kube
from muster.model.reading import Known, Unknown
from tests import builders


@st.composite
def gpus(draw, number):
    """A GPU as it may be found: fine, lost, silent, hidden, sick, used, cut."""
    pod = draw(st.sampled_from(["a", "b", "ghost"]))
    return draw(
        st.sampled_from(
            [
                builders.a_gpu(number),
                builders.a_gpu(number),
                builders.a_gpu(number),
                builders.a_lost_gpu(number),
                builders.a_lost_gpu(number, "TIMEOUT"),
                builders.a_lost_gpu(number, "NO_PERMISSION"),
                builders.a_lost_gpu(number, "UNKNOWN"),
                builders.a_gpu(number, processes=Known((builders.a_process(),))),
                builders.a_gpu(
                    number, processes=Known((builders.a_process(cgroup=builders.pod_cgroup(f"uid-{pod}")),))
                ),
                builders.a_gpu(number, processes=Unknown("NO_PERMISSION")),
                builders.a_gpu(number, retired_pages_pending=Known(True)),
                builders.a_mig_gpu(number, ("1g.10gb", "2g.20gb")),
                builders.a_mig_gpu(number, ()),
                builders.a_gpu(number, mig=Unknown("NO_PERMISSION")),
            ]
        )
    )


IDS = ("GPU-0", "GPU-1", "GPU-2", "GPU-1::0", "GPU-1::1", "MIG-0-0", "MIG-0-1", "MIG-9-9", "nvidia2", "other")
MIG, SHARED, SHARE, DRIVER = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "vendor.example/share", "gpu.nvidia.com"
NAMES = [builders.WHOLE, MIG, SHARED, SHARE]
COUNTS = st.one_of(st.integers(0, 9), st.tuples(st.integers(0, 9), st.integers(0, 9)))


LABELS = [{}, {}, {"nvidia.com/mig.config.state": "pending"}, {"nvidia.com/mig.strategy": "single"}]


def claiming(device):
    """Return a pod of List that holds a device of a slice."""
    claim = planes.Claim(devices=(planes.ClaimDevice(driver=DRIVER, device=device),))
    return planes.ListedPod(
        namespace="ml", name="claims", containers=(planes.ListedContainer(name="m", devices=(), claims=(claim,)),)
    )


@st.composite
def slices(draw):
    """What DRA says: often nothing, else devices that may be anybody's."""
    if draw(st.booleans()):
        return kube.Dra()
    uuids = draw(st.lists(st.sampled_from(IDS), max_size=3, unique=True))
    devices = tuple(kube.DraDevice(name=f"d{number}", uuid=uuid) for number, uuid in enumerate(uuids))
    alive = Known(draw(st.booleans()))
    return kube.Dra(
        drivers=(kube.DraDriver(name=DRIVER, registration_socket_present=alive),),
        slices=(kube.DraSlice(driver=DRIVER, devices=devices),),
        device_classes=(kube.DeviceClass(name=DRIVER, extended_resource=draw(st.sampled_from(("", builders.WHOLE)))),),
    )


@st.composite
def nodes(draw, at=0):
    """A node whose planes agree or not, all of them readable."""
    devices = tuple(draw(gpus(number)) for number in range(draw(st.integers(0, 3))))
    texts = st.lists(st.sampled_from(IDS), max_size=5, unique=True).map(tuple)
    resources = draw(st.dictionaries(st.sampled_from(NAMES), texts, max_size=3))
    held = draw(st.dictionaries(st.sampled_from(["a", "b"]), texts, max_size=2))
    listed = tuple(
        builders.a_listed_pod(name, *ids, resource=draw(st.sampled_from(NAMES))) for name, ids in held.items()
    )
    if draw(st.booleans()):
        listed = (*listed, claiming(draw(st.sampled_from(["d0", "d1", "d9"]))))
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True))
    pods = tuple(
        builders.a_pod(
            name,
            units=draw(st.integers(0, 3)),
            resource=draw(st.sampled_from(NAMES)),
            phase=draw(st.sampled_from(list(kube.PodPhase))),
            deletion_at=draw(st.sampled_from([None, builders.after(-600), builders.after(60)])),
        )
        for name in names
    )
    return builders.a_node(
        0,
        at=at,
        nvml=Known(builders.planes.Nvml(devices=devices)),
        kubelet=builders.a_kubelet(
            resources, listed, started_at=Known(draw(st.sampled_from([builders.LONG_AGO, builders.after(-30)])))
        ),
        node_object=builders.a_node_object(
            draw(st.dictionaries(st.sampled_from(NAMES), COUNTS, max_size=3)),
            labels=draw(st.sampled_from(LABELS)),
        ),
        dra=Known(draw(slices())),
        plugins=Known(
            draw(st.sampled_from([(), (builders.a_plugin(),), (builders.a_plugin(process_alive=Known(False)),)]))
        ),
        pods=Known(pods),
    )


@st.composite
def timelines(draw, most=4):
    """Samples of one node, some seconds or minutes apart."""
    at, result = 0, []
    for _ in range(draw(st.integers(1, most))):
        at += draw(st.sampled_from([5, 30, 400]))
        result.append(draw(nodes(at=at)))
    return result
