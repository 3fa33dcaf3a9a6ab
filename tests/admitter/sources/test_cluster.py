"""What each agent is sent of the cluster: one node's trouble is that node's alone."""

from lightkube.config import kubeconfig
from lightkube.config.models import Cluster, User

from admitter.confined import Confined
from admitter.sources.apiclient import Api
from admitter.sources.cluster import ClusterWatch
from muster.clock import SystemClock


async def test_a_slice_that_cannot_be_sent_keeps_no_other_agent_from_its_own():
    confined, sent = Confined(), []

    def send(node, content, age):
        if node == "n2":
            raise ValueError("Value out of range: 18446744073709551614")
        sent.append((node, age))

    config = kubeconfig.KubeConfig.from_one(cluster=Cluster(server="http://127.0.0.1:1"), user=User()).get()
    nodes = {"n1", "n2", "n3"}
    watch = ClusterWatch(Api(config), SystemClock(), agents=lambda: nodes, confined=confined)
    await watch._send(send, sorted(nodes), 5.0)
    assert sent == [("n1", 5.0), ("n3", 5.0)]
    assert confined.failures["slice"] == 1
