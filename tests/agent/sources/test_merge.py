"""Two halves of a plugin."""

import dataclasses

import pytest

from agent.sources import merge
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Known, Unknown

PROCESS = kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(True), socket_present=Known(True))
POD = kube.Plugin(resource_prefix="nvidia.com", pod="ns/p", pod_phase="Running", restarts=Known(1), message="m")


@pytest.mark.parametrize(
    ("process_half", "pod_half", "expected"),
    [
        (Known((PROCESS,)), Unknown("Gone"), Known((PROCESS,))),
        (Unknown("ReaderGone"), Known((POD,)), Known((POD,))),
        (Unknown("ReaderGone"), NOT_COLLECTED, Unknown("ReaderGone")),
        (Known(()), Known((POD,)), Known((POD,))),
    ],
    ids=["process alone", "pod alone", "neither", "pod without process"],
)
def test_one_half_alone_counts(process_half, pod_half, expected):
    """What one side knows is kept when the other is silent."""
    assert merge.plugins(process_half, pod_half) == expected


def test_halves_join_by_prefix():
    """Process facts and pod facts of one plugin become one value."""
    other = kube.Plugin(resource_prefix="example.com", pod="ns/q")
    match merge.plugins(Known((PROCESS,)), Known((POD, other))):
        case Known((first, second)):
            assert first == other
            assert (second.process_alive, second.restarts, second.pod) == (Known(True), Known(1), "ns/p")
        case wrong:
            pytest.fail(str(wrong))


def test_a_plugin_with_neither_process_nor_pod_is_not_on_the_node():
    """The reader always answers for the plugin it looks for; alone it cannot tell a dead one from none (faults.md A12)."""
    dead = kube.Plugin(resource_prefix="nvidia.com", process_alive=Known(False), socket_present=Known(False))
    assert merge.plugins(Known((dead,)), Known(())) == Known(())
    assert merge.plugins(Known((dead,)), NOT_COLLECTED) == Known((dead,))
    (joined,) = merge.plugins(Known((dead,)), Known((POD,))).value
    assert (joined.process_alive, joined.pod) == (Known(False), "ns/p")
    (living,) = merge.plugins(Known((PROCESS,)), Known(())).value
    assert living == PROCESS


def test_one_of_each_is_one_plugin():
    """The process table does not always tell the prefix; a node's only plugin is its only plugin."""
    nameless = kube.Plugin(process_alive=Known(True))
    match merge.plugins(Known((nameless,)), Known((POD,))):
        case Known((only,)):
            assert (only.resource_prefix, only.pod, only.process_alive) == ("nvidia.com", "ns/p", Known(True))
        case wrong:
            pytest.fail(str(wrong))


def test_a_plugin_whose_process_nobody_sees_is_there_by_its_socket():
    """Without the host's processes a socket is what shows a plugin without a pod; without either it is not on the node."""
    unseen = kube.Plugin(
        resource_prefix="nvidia.com", process_alive=Unknown("NoHostPidView"), socket_present=Known(False)
    )
    assert merge.plugins(Known((unseen,)), Known(())) == Known(())
    for shown in ({"socket_present": Known(True)}, {"socket_dir": "/k0s/device-plugins"}):
        plugin = dataclasses.replace(unseen, **shown)
        assert merge.plugins(Known((plugin,)), Known(())) == Known((plugin,))


def test_what_a_plugin_says_itself_stands_above_what_its_pod_was_told():
    process = dataclasses.replace(PROCESS, config={"preferredAllocation": "true"})
    pod = dataclasses.replace(POD, config={"preferredAllocation": "false", "migStrategy": "mixed"})
    (joined,) = merge.plugins(Known((process,)), Known((pod,))).value
    assert joined.config == {"preferredAllocation": "true", "migStrategy": "mixed"}


NAME = "gpu.nvidia.com"
SLICE = kube.DraSlice(driver=NAME, devices=(kube.DraDevice(name="gpu-0"),))
OFFERED = kube.Dra(slices=(SLICE,), device_classes=(kube.DeviceClass(name="gpu"),))


def a_driver(name=NAME, *, answering=True):
    return kube.DraDriver(name=name, registration_socket_present=Known(True), answering=Known(answering))


@pytest.mark.parametrize(
    ("seen", "present", "answering"),
    [
        ((), False, False),
        ((a_driver(),), True, True),
        ((a_driver(answering=False),), True, False),
        ((a_driver("ebs.csi.aws.com"),), False, False),
        ((a_driver(f"{NAME}-6f1c", answering=False),), True, False),
        ((a_driver(f"{NAME}-6f1c", answering=False), a_driver()), True, True),
        ((a_driver(f"{NAME}-of-others"),), False, False),
    ],
    ids=["gone", "well", "silent", "another's", "silent, of a rolling update", "the new one answers", "an alike name"],
)
def test_a_driver_with_slices_is_there_by_its_sockets(seen, present, answering):
    found = {driver.name: driver for driver in merge.dra(Known(seen), Known(OFFERED)).value.drivers}
    assert (found[NAME].registration_socket_present, found[NAME].answering) == (Known(present), Known(answering))


def test_a_driver_that_nobody_has_asked_yet_is_not_called_silent():
    unasked = kube.DraDriver(name=NAME, registration_socket_present=Known(True), answering=Unknown("NotAsked"))
    (driver,) = merge.dra(Known((unasked,)), Known(OFFERED)).value.drivers
    assert driver.answering == Unknown("NotAsked")


@pytest.mark.parametrize("why", ["NotAsked", "NameNotSaid", "EACCES"])
def test_a_socket_that_has_not_said_its_name_may_be_the_drivers(why):
    """`plugins_registry/x/reg.sock` is as good a place as any: until it is asked nobody may call its driver gone."""
    odd = kube.DraDriver(name="reg", registration_socket_present=Known(True), answering=Unknown(why))
    (driver,) = merge.dra(Known((odd,)), Known(OFFERED)).value.drivers
    assert (driver.name, driver.registration_socket_present, driver.answering) == (NAME, Unknown(why), Unknown(why))


def test_a_socket_that_nobody_serves_is_nobodys():
    (driver,) = merge.dra(Known((a_driver("reg", answering=False),)), Known(OFFERED)).value.drivers
    assert (driver.registration_socket_present, driver.answering) == (Known(False), Known(False))


def test_a_driver_without_slices_is_known_once_it_answers():
    (driver,) = merge.dra(Known((a_driver(), a_driver("odd", answering=False))), Known(kube.Dra())).value.drivers
    assert driver.name == NAME


def test_without_slices_or_sockets_nothing_is_said_of_drivers():
    """A driver alone must not look like one that publishes nothing, nor slices alone like a dead driver."""
    assert merge.dra(Known((a_driver(),)), Unknown("AdmitterGone")) == Unknown("AdmitterGone")
    assert merge.dra(Known((a_driver(),)), NOT_COLLECTED) == NOT_COLLECTED
    assert merge.dra(Unknown("Unreadable"), Known(OFFERED)) == Known(OFFERED)
