"""Xids are found in both planes and counted once."""

import pytest

from agent.core import kernel_log
from agent.model.planes import KernelRecord, Xid, XidSource
from muster.model.reading import Known, Unknown
from tests import builders


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.", ("0000:1b:00", 79, None, None)),
        ("NVRM: Xid (PCI:0000:1B:00): 119, Timeout waiting for RPC from GSP", ("0000:1b:00", 119, None, None)),
        ("NVRM: Xid (PCI:0000:1b:00 GPU-I:09 GPU-CI:00): 48, pid=1, name=x", ("0000:1b:00", 48, 9, 0)),
        (
            (
                "NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is not "
                "responding to commands."
            ),
            ("0000:1b:00", 79, None, None),
        ),
        ("NVRM: GPU at PCI:0000:1b:00: GPU-1\n", None),
        ("NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.", ("0000:1b:00", 79, None, None)),
        ("usb 1-1: new device", None),
    ],
)
def test_records(text, parsed):
    assert kernel_log.xid_in(text) == parsed


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("00000000:1B:00.0", "0000:1b:00"),
        ("0000:1b:00.0", "0000:1b:00"),
        ("00010000:07:00.0", "10000:07:00"),
        ("1b:00.0", "1b:00"),
    ],
)
def test_addresses(address, normal):
    assert kernel_log.normalised(address) == normal


def xids(gpu, *records):
    return kernel_log.xids_of([gpu], Known(records)).get(gpu.uuid, ())


def record(seconds, code, pci="0000:13:00"):
    return KernelRecord(at=builders.after(seconds), text=f"NVRM: Xid (PCI:{pci}): {code}, text")


def test_what_both_planes_saw_is_one_event():
    seen = Xid(code=79, at=builders.after(0))
    gpu = builders.a_gpu(3, xids=Known((seen,)))
    assert xids(gpu, record(2, 79), record(60, 79), record(1, 31), record(1, 79, "0000:14:00")) == (
        seen,
        Xid(code=31, at=builders.after(1), source=XidSource.KERNEL_LOG),
        Xid(code=79, at=builders.after(60), source=XidSource.KERNEL_LOG),
    )


def test_the_log_alone_is_enough_and_so_is_neither():
    assert [event.code for event in xids(builders.a_gpu(3), record(0, 48))] == [48]
    assert kernel_log.xids_of([builders.a_gpu(3)], Unknown("NoPermission")) == {}
