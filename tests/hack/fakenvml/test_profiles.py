"""Each machine shows the numbers of topology.md sections 2 and 3 through the real binding."""

import pytest

from hack import fakenvml
from hack.fakenvml import mig

READ = """
def seen(function, *arguments):
    try:
        return function(*arguments)
    except n.NVMLError as error:
        return -error.value

def fabric(h):
    info = n.c_nvmlGpuFabricInfo_v3_t()
    code = seen(n.nvmlDeviceGetGpuFabricInfoV, h, ctypes.byref(info))
    return code or [info.state, info.status, bytes(info.clusterUuid).hex(), info.cliqueId, info.healthSummary]

def remotes(h):
    count = seen(n.nvmlDeviceGetFieldValues, h, [n.NVML_FI_DEV_NVLINK_LINK_COUNT])
    if isinstance(count, int):
        return count
    found = []
    for link in range(count[0].value.uiVal):
        pci = seen(n.nvmlDeviceGetNvLinkRemotePciInfo, h, link)
        found.append([n.nvmlDeviceGetNvLinkState(h, link), seen(n.nvmlDeviceGetNvLinkRemoteDeviceType, h, link),
                      pci if isinstance(pci, int) else pci.busId])
    return found

def nodes(h):
    return [64 * i + b for i, word in enumerate(n.nvmlDeviceGetMemoryAffinity(h, 2, 0)) for b in range(64) if word >> b & 1]

def gpu(index):
    h = n.nvmlDeviceGetHandleByIndex(index)
    return {
        "name": n.nvmlDeviceGetName(h), "pci": n.nvmlDeviceGetPciInfo(h).busId, "uuid": n.nvmlDeviceGetUUID(h),
        "mib": n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).total >> 20, "fabric": fabric(h), "remotes": remotes(h),
        "nodes": nodes(h), "mig": seen(n.nvmlDeviceGetMigMode, h),
    }
"""

NOT_SUPPORTED = -3
SOLO_FABRIC = [3, 0, "0" * 32, 0, 1]


@pytest.fixture
def machine(path, start):
    def read(name):
        fakenvml.write(fakenvml.profile(name), path)
        child = start()
        child(READ)
        return [child(f"gpu({index})") for index in range(child("n.nvmlDeviceGetCount()"))]

    return read


def bundles(gpu):
    pcis = [pci for _, _, pci in gpu["remotes"]]
    return sorted(pcis.count(pci) for pci in set(pcis))


def test_hgx_h100(machine):
    gpus = machine("hgx-h100")
    assert [gpu["nodes"] for gpu in gpus] == [[0]] * 4 + [[1]] * 4
    assert {gpu["name"] for gpu in gpus} == {"NVIDIA H100 80GB HBM3"}
    assert {gpu["mib"] for gpu in gpus} == {81559}
    for gpu in gpus:
        assert gpu["fabric"] == SOLO_FABRIC
        assert bundles(gpu) == [4, 4, 5, 5], "18 links to 4 switches in unequal bundles"
        assert {tuple(remote[:2]) for remote in gpu["remotes"]} == {(1, 2)}
        assert gpu["mig"] == [0, 0]


def test_dgx_a100(machine):
    gpus = machine("dgx-a100")
    assert [gpu["nodes"] for gpu in gpus] == [[3], [3], [1], [1], [7], [7], [5], [5]]
    assert [gpu["pci"][9:11] for gpu in gpus] == ["07", "0F", "47", "4E", "87", "90", "B7", "BD"]
    for gpu in gpus:
        assert gpu["fabric"] == NOT_SUPPORTED
        assert bundles(gpu) == [2] * 6
        assert gpu["mig"] == [0, 0]


def test_gb200(machine):
    gpus = machine("gb200")
    assert len(gpus) == 4
    assert gpus[0]["nodes"] == gpus[1]["nodes"] == [0, *range(3, 10), *range(11, 18)]
    assert gpus[2]["nodes"] == gpus[3]["nodes"] == [1, *range(19, 26), *range(27, 34)]
    assert len({gpu["fabric"][2] for gpu in gpus}) == 1
    assert gpus[0]["fabric"][2] != "0" * 32
    assert {gpu["fabric"][3] for gpu in gpus} == {32766}
    assert gpus[0]["remotes"] == [[1, 2, NOT_SUPPORTED]] * 18, "the tray's switches are not on this bus"


def test_a100_pcie_is_bridged_in_pairs(machine):
    gpus = machine("a100-pcie")
    by_pci = {gpu["pci"]: index for index, gpu in enumerate(gpus)}
    partners = [{by_pci[pci] for _, _, pci in gpu["remotes"]} for gpu in gpus]
    assert partners == [{2}, {3}, {0}, {1}, {5}, {4}, {7}, {6}]
    assert {kind for gpu in gpus for _, kind, _ in gpu["remotes"]} == {0}
    assert [gpu["nodes"] for gpu in gpus] == [[0]] * 4 + [[1]] * 4


def test_a100_pcie_ends_number_their_links_differently(path, start):
    fakenvml.write(fakenvml.profile("a100-pcie"), path)
    child = start()
    child("hs = [n.nvmlDeviceGetHandleByIndex(i) for i in (0, 2)]")
    remote = "n.nvmlDeviceGetFieldValues(hs[{}], [(n.NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID, {})])[0].value.uiVal"
    assert child(remote.format(0, 4)) == 6
    assert child(remote.format(1, 6)) == 4


@pytest.mark.parametrize(("name", "mbps"), [("dgx-a100", 25781), ("hgx-h100", 26562), ("gb200", 53125)])
def test_link_rates(name, mbps, path, start):
    fakenvml.write(fakenvml.profile(name), path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0)")
    fields = "[(n.NVML_FI_DEV_NVLINK_GET_SPEED, 3), (n.NVML_FI_DEV_NVLINK_GET_STATE, 3)]"
    assert child(f"[v.value.uiVal for v in n.nvmlDeviceGetFieldValues(h, {fields})]") == [mbps, 1]


def test_l40s_has_no_nvlink(machine):
    gpus = machine("l40s")
    assert len(gpus) == 8
    assert {gpu["remotes"] for gpu in gpus} == {NOT_SUPPORTED}
    assert {gpu["fabric"] for gpu in gpus} == {NOT_SUPPORTED}


def test_l40s_answers_not_supported_on_link_0(path, start):
    fakenvml.write(fakenvml.profile("l40s"), path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0)")
    assert child.code("n.nvmlDeviceGetNvLinkState(h, 0)") == 3


def test_a_link_beyond_the_board_is_an_invalid_argument(path, start):
    fakenvml.write(fakenvml.profile("hgx-h100"), path)
    child = start()
    child("h = n.nvmlDeviceGetHandleByIndex(0)")
    assert child.code("n.nvmlDeviceGetNvLinkState(h, 18)") == 2


def test_t4(machine):
    gpus = machine("t4")
    assert len(gpus) == 4
    assert {gpu["mig"] for gpu in gpus} == {NOT_SUPPORTED}
    assert {gpu["name"] for gpu in gpus} == {"Tesla T4"}


@pytest.mark.parametrize("name", fakenvml.MACHINES)
def test_uuids_differ_between_nodes_and_not_between_runs(name):
    one, again, other = (fakenvml.profile(name, node=node) for node in ("n1", "n1", "n2"))
    assert one == again
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in other.gpus}


@pytest.mark.parametrize("name", fakenvml.MACHINES)
def test_links_are_symmetric(name):
    state = fakenvml.profile(name)
    for gpu in state.gpus:
        for number, link in enumerate(gpu.links):
            if link.remote == 0:
                peer = next(peer for peer in state.gpus if peer.pci == link.remote_pci)
                assert peer.links[link.remote_link].remote_pci == gpu.pci
                assert peer.links[link.remote_link].remote_link == number


@pytest.mark.parametrize("product", mig.PRODUCTS)
def test_mig_ids_and_placements(product):
    wanted = {
        19: (range(7), 1), 20: (range(7), 1), 15: ((0, 2, 4, 6), 2), 14: ((0, 2, 4), 2), 9: ((0, 4), 4), 5: ((0,), 4),
        0: ((0,), 8),
    }  # fmt: skip
    for profile in mig.table(product):
        starts, size = wanted[profile.id]
        assert (profile.starts, profile.size) == (tuple(starts), size)


@pytest.mark.parametrize(
    ("product", "id_", "low", "high", "sm"),
    [
        ("NVIDIA A100-PCIE-40GB", 19, 4.75, 4.75, 14), ("NVIDIA A100-PCIE-40GB", 0, 39.25, 39.5, 98),
        ("NVIDIA A100-SXM4-80GB", 19, 9.5, 9.75, 14), ("NVIDIA A100-SXM4-80GB", 9, 39.25, 39.25, 42), ("NVIDIA A100-SXM4-80GB", 0, 78.5, 79, 98),
        ("NVIDIA H100 80GB HBM3", 19, 9.75, 9.75, 16), ("NVIDIA H100 80GB HBM3", 15, 19.62, 19.63, 26), ("NVIDIA H100 80GB HBM3", 0, 79.25, 79.25, 132),
        ("NVIDIA GB200", 19, 20, 22, 18), ("NVIDIA GB200", 15, 45.5, 45.5, 32),
    ],
)  # fmt: skip
def test_mig_sizes(product, id_, low, high, sm):
    profile = next(profile for profile in mig.table(product) if profile.id == id_)
    assert low <= profile.memory_mib / 1024 <= high
    assert profile.sm == sm
