"""Machines that the fake driver can be: whole States with the numbers of topology.md section 2.

In: a machine's name and a node's name. Out: its healthy State. UUIDs follow from both names, so that several fake nodes
differ and a rerun does not.

Where topology.md marks a number as inferred, or is silent (PCI addresses of HGX boards, event masks), the value here is a
plausible one and the comment beside it says so.
"""

import uuid as uuid_module
from collections.abc import Callable, Iterable

from hack.fakenvml.state import Gpu, Link, State

MIB = 1 << 20
HEALTHY_MASK = 0x1AA
"""Bad configuration: none (1); bandwidth, route recovery, route, timeout: false (2), topology.md section 1.2."""

HOPPER_EVENTS = 0xFF9F
"""Every bit of topology.md section 1.3; which of them a board supports is not captured."""
AMPERE_EVENTS = 0x119F
"""Without storm, retirement, fatal poison, GPU unavailable and recovery action; not captured either."""
TURING_EVENTS = 0x1F


def profile(name: str, *, node: str = "node") -> State:
    """Return a healthy machine; names are the keys of MACHINES."""
    return MACHINES[name](node)


def _uuid(machine: str, node: str, index: int) -> str:
    return f"GPU-{uuid_module.uuid5(uuid_module.NAMESPACE_OID, f'{machine}/{node}/{index}')}"


def _switch_links(bundles: Iterable[tuple[str, int]]) -> tuple[Link, ...]:
    """Links to switches: (switch's address, number of links)."""
    return tuple(Link(remote=2, remote_link=None, remote_pci=pci) for pci, count in bundles for _ in range(count))


def _hgx_h100(node: str) -> State:
    # Bundles of 4 to 5 links (inferred); addresses of the four switches and the GPUs as on one vendor's board.
    links = _switch_links((("0000:07:00.0", 5), ("0000:08:00.0", 4), ("0000:09:00.0", 4), ("0000:0a:00.0", 5)))
    buses = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
    gpus = tuple(
        Gpu(
            uuid=_uuid("hgx-h100", node, index), name="NVIDIA H100 80GB HBM3", pci=f"0000:{bus}:00.0", minor=index,
            pci_device=0x233010DE, pci_subsystem=0x16C110DE, memory=81559 * MIB, reserved=551 * MIB,
            mig_current=0, mig_pending=0, mig_max=7,
            # A single-node fabric: completed, success, all-zero UUID.
            fabric_state=3, fabric_mask=HEALTHY_MASK, fabric_summary=1,
            nvlinks=18, nvlink_mbps=26562, links=links, numa_node=index // 4, numa_memory=(index // 4,),
            events=HOPPER_EVENTS,
        )
        for index, bus in enumerate(buses)
    )  # fmt: skip
    return State(driver="580.65.06", gpus=gpus)


def _dgx_a100(node: str) -> State:
    links = _switch_links((f"0000:{bus}:00.0", 2) for bus in ("c4", "c5", "c6", "c7", "c8", "c9"))
    buses = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
    numa = (3, 3, 1, 1, 7, 7, 5, 5)
    gpus = tuple(
        Gpu(
            uuid=_uuid("dgx-a100", node, index), name="NVIDIA A100-SXM4-80GB", pci=f"0000:{bus}:00.0", minor=index,
            pci_device=0x20B210DE, pci_subsystem=0x147F10DE, memory=81920 * MIB, reserved=551 * MIB,
            mig_current=0, mig_pending=0, mig_max=7, nvlinks=12, nvlink_mbps=25781, links=links,
            numa_node=numa[index], numa_memory=(numa[index],), events=AMPERE_EVENTS,
        )
        for index, bus in enumerate(buses)
    )  # fmt: skip
    return State(driver="550.127.05", gpus=gpus)


def _gb200(node: str) -> State:
    # The tray's switches are in the rack, not on this node's bus: active links, remote kind known, address not.
    links = _switch_links((("", 18),))
    cluster = uuid_module.uuid5(uuid_module.NAMESPACE_OID, "nvl72").hex
    gpus = tuple(
        Gpu(
            uuid=_uuid("gb200", node, index), name="NVIDIA GB200", pci=f"{domain}:01:00.0", minor=index,
            pci_device=0x294110DE, pci_subsystem=0x204610DE, memory=189471 * MIB, reserved=1024 * MIB,
            mig_current=0, mig_pending=0, mig_max=7,
            fabric_state=3, fabric_uuid=cluster, fabric_clique=32766, fabric_mask=HEALTHY_MASK, fabric_summary=1,
            nvlinks=18, nvlink_mbps=53125, links=links, numa_node=index // 2,
            # 34 NUMA nodes: 0 and 1 have the CPUs; 2, 10, 18 and 26 are the GPUs themselves and near none of them.
            numa_memory=(0, *range(3, 10), *range(11, 18)) if index < 2 else (1, *range(19, 26), *range(27, 34)),
            events=HOPPER_EVENTS,
        )
        for index, domain in enumerate(("0008", "0009", "0018", "0019"))
    )  # fmt: skip
    return State(driver="580.65.06", gpus=gpus)


def _a100_pcie(node: str) -> State:
    buses = ("01", "24", "41", "61", "81", "a1", "c1", "e1")
    partners = {0: 2, 2: 0, 1: 3, 3: 1, 4: 5, 5: 4, 6: 7, 7: 6}

    def links(index: int) -> tuple[Link, ...]:
        # The two ends number their links differently: local 4 is the partner's 6.
        shift = 2 if index < partners[index] else -2
        pci = f"0000:{buses[partners[index]]}:00.0"
        return tuple(Link(remote=0, remote_link=(link + shift) % 12, remote_pci=pci) for link in range(12))

    gpus = tuple(
        Gpu(
            uuid=_uuid("a100-pcie", node, index), name="NVIDIA A100-PCIE-40GB", pci=f"0000:{bus}:00.0", minor=index,
            pci_device=0x20F110DE, pci_subsystem=0x145F10DE, memory=40960 * MIB, reserved=551 * MIB,
            mig_current=0, mig_pending=0, mig_max=7, nvlinks=12, nvlink_mbps=25781, links=links(index),
            numa_node=index // 4, numa_memory=(index // 4,), events=AMPERE_EVENTS,
        )
        for index, bus in enumerate(buses)
    )  # fmt: skip
    return State(driver="535.183.01", gpus=gpus)


def _l40s(node: str) -> State:
    gpus = tuple(
        Gpu(
            uuid=_uuid("l40s", node, index), name="NVIDIA L40S", pci=f"0000:{bus}:00.0", minor=index,
            pci_device=0x26B910DE, pci_subsystem=0x185110DE, memory=46068 * MIB, reserved=600 * MIB,
            numa_node=index // 4, numa_memory=(index // 4,), events=AMPERE_EVENTS & ~0x100,
        )
        for index, bus in enumerate(("16", "27", "38", "4a", "98", "a8", "b8", "c9"))
    )  # fmt: skip
    return State(driver="570.172.08", gpus=gpus)


def _t4(node: str) -> State:
    # Turing: page retirement instead of row remapping, no SRAM status, and too old for the recovery action.
    gpus = tuple(
        Gpu(
            uuid=_uuid("t4", node, index), name="Tesla T4", pci=f"0000:{bus}:00.0", minor=index,
            pci_device=0x1EB810DE, pci_subsystem=0x12A210DE, memory=15360 * MIB, reserved=450 * MIB,
            recovery_action=None, remap_correctable=None, remap_uncorrectable=None, remap_pending=None,
            remap_failed=None, retired_pending=0, sram_uncorrected=None, sram_volatile=None, sram_threshold=None, fabric_version=0,
            numa_node=index // 2, numa_memory=(index // 2,), events=TURING_EVENTS,
        )
        for index, bus in enumerate(("18", "3b", "86", "af"))
    )  # fmt: skip
    return State(driver="535.183.01", gpus=gpus)


MACHINES: dict[str, Callable[[str], State]] = {
    "hgx-h100": _hgx_h100,
    "dgx-a100": _dgx_a100,
    "gb200": _gb200,
    "a100-pcie": _a100_pcie,
    "l40s": _l40s,
    "t4": _t4,
}
