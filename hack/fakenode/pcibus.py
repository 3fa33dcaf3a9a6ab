"""A fake PCI bus under a host's `sys/`: functions, the drivers they are bound to, their IOMMU groups.

In: a host's root and an address. Out: the files and links of sysfs. Not here: which GPUs there are (host.py).
"""

import pathlib
import shutil


def add(
    root: pathlib.Path,
    address: str,
    *,
    vendor: int = 0x10DE,
    device: int,
    class_: int = 0x030200,
    numa_node: int = 0,
    iommu_group: int | None = None,
    driver: str | None = "nvidia",
) -> None:
    """Put a function on the bus; the default class is a 3D controller, as all data centre boards are."""
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"0x{vendor:04x}\n")
    (folder / "device").write_text(f"0x{device:04x}\n")
    (folder / "class").write_text(f"0x{class_:06x}\n")
    (folder / "numa_node").write_text(f"{numa_node}\n")
    if iommu_group is not None:
        (root / "sys/kernel/iommu_groups" / str(iommu_group)).mkdir(parents=True, exist_ok=True)
        (folder / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{iommu_group}")
    bind(root, address, driver)


def bind(root: pathlib.Path, address: str, driver: str | None) -> None:
    """Bind the function to a kernel driver, `vfio-pci` for a virtual machine's, or to none."""
    link = root / "sys/bus/pci/devices" / address / "driver"
    link.unlink(missing_ok=True)
    if driver is not None:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../drivers/{driver}")


def remove(root: pathlib.Path, address: str) -> None:
    """Take the function off the bus."""
    shutil.rmtree(root / "sys/bus/pci/devices" / address)
