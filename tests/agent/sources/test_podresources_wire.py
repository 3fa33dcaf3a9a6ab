"""Our copy of the kubelet's contract says the same bytes as the kubelet's own (k8s.io/kubelet, podresources/v1)."""

import pytest

from muster.pb.kubelet.podresources.v1 import podresources_pb2 as pb

FIELDS = {
    "ListPodResourcesResponse": {"pod_resources": 1},
    "PodResources": {"name": 1, "namespace": 2, "containers": 3},
    "ContainerResources": {"name": 1, "devices": 2, "cpu_ids": 3, "dynamic_resources": 5},
    "ContainerDevices": {"resource_name": 1, "device_ids": 2, "topology": 3},
    "TopologyInfo": {"nodes": 1},
    "NUMANode": {"ID": 1},
    "AllocatableResourcesResponse": {"devices": 1, "cpu_ids": 2},
    "DynamicResource": {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4},
    "ClaimResource": {"cdi_devices": 1, "driver_name": 2, "pool_name": 3, "device_name": 4},
}


@pytest.mark.parametrize("message", FIELDS)
def test_field_numbers_are_the_kubelets(message):
    """A renumbered field would read other people's data."""
    fields = pb.DESCRIPTOR.message_types_by_name[message].fields_by_name
    assert {name: field.number for name, field in fields.items()} == FIELDS[message]


def test_the_service_is_the_kubelets():
    """Package, service and methods make the path that is called."""
    service = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
    assert service.full_name == "v1.PodResourcesLister"
    assert [method.name for method in service.methods] == ["List", "GetAllocatableResources"]


def test_a_kubelets_bytes():
    """An answer written by hand, with a field (memory, 4) that we do not know and NUMA node 0 as an empty message."""
    devices = b"\x12\x17" + b"\x0a\x0envidia.com/gpu" + b"\x12\x01G" + b"\x1a\x02\x0a\x00"
    container = b"\x0a\x04main" + devices + b"\x22\x03\x0a\x01m"
    pod = b"\x0a\x01p" + b"\x12\x02ns" + b"\x1a" + bytes([len(container)]) + container
    message = pb.ListPodResourcesResponse.FromString(b"\x0a" + bytes([len(pod)]) + pod)
    assert message.pod_resources[0].namespace == "ns"
    device = message.pod_resources[0].containers[0].devices[0]
    assert (device.resource_name, list(device.device_ids)) == ("nvidia.com/gpu", ["G"])
    assert [node.ID for node in device.topology.nodes] == [0]
