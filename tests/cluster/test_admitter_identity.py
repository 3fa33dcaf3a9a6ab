"""Agents and callers by service-account tokens, on a real API server: what is believed, and what is not."""

import base64
import json

import grpc
import pytest

from muster import client
from tests.admitter.admitters import a_gang
from tests.admitter.kubetown import KubeTown, until
from tests.feedworld import a_hello, a_snapshot

NODE, OTHER = "fake-0000", "fake-0001"


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return KubeTown(tmp_path, cluster, client, namespace)


async def refusal(town, port, token, node=NODE):
    async with town.token_wire(port, token) as wire:
        await wire.say(hello=a_hello(node=node))
        return await wire.hear_end()


async def test_an_agent_is_the_node_that_its_token_is_bound_to(town):
    token = town.token(pod=town.pod_on(NODE))
    async with town.kube_admitter() as (admitter, _), town.token_wire(admitter.token_port, token) as wire:
        welcome = await wire.greet(node=NODE)
        assert welcome.api_server
        await wire.say(snapshot=a_snapshot(content=None))


async def test_an_agent_may_not_speak_for_another_node(town):
    token = town.token(pod=town.pod_on(NODE))
    async with town.kube_admitter() as (admitter, _):
        code, words = await refusal(town, admitter.token_port, token, node=OTHER)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert NODE in words


async def test_a_token_that_is_not_for_us_is_nobodys(town):
    """Another audience, forged, cut, expired pods: each ends with UNAUTHENTICATED and feeds nothing."""
    pod = town.pod_on(NODE)
    good = town.token(pod=pod)
    head, body, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["kubernetes.io"]["node"] = {"name": OTHER, "uid": "x"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    gone, own = town.token(pod=pod), town.token(pod=pod, audience="")
    assert (town.is_known(own), town.is_known(good)) == (True, False), "the first opens the API server, ours does not"
    bad = {
        "another audience": town.token(pod=pod, audience="somebody-else"),
        "the API server's own audience": own,
        "a node written into it": f"{head}.{forged}.{signature}",
        "cut": good[:-10],
        "noise": "abc",
        "none": "",
    }
    async with town.kube_admitter() as (admitter, _):
        for what, token in bad.items():
            code, _ = await refusal(town, admitter.token_port, token)
            assert code is grpc.StatusCode.UNAUTHENTICATED, what
        town.kube.delete(type(pod), pod.metadata.name, namespace=town.namespace, grace_period=0)

        def is_gone():
            return pod.metadata.uid not in {item.metadata.uid for item in town.kube.list(type(pod), namespace="*")}

        await until(is_gone, "the end of the pod")
        code, _ = await refusal(town, admitter.token_port, gone)
        assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_only_the_agents_account_may_feed(town):
    """Any pod can ask for a token of our audience, and would be taken for its node's agent."""
    town.account("tenant")
    tenant = town.token("tenant", pod=town.pod_on(NODE, "tenant"))
    loose = town.token()
    async with town.kube_admitter() as (admitter, _):
        assert (await refusal(town, admitter.token_port, tenant))[0] is grpc.StatusCode.UNAUTHENTICATED
        # The right account, and bound to no pod: it could be on any node.
        assert (await refusal(town, admitter.token_port, loose))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_a_caller_may_what_rbac_lets_it(town):
    for name in ("reader", "stranger"):
        town.account(name)
    town.grant("reader", ["list"], "gangs")
    reader, stranger, agent = town.token("reader"), town.token("stranger"), town.token(pod=town.pod_on(NODE))
    async with town.kube_admitter() as (admitter, address), town.client(address) as submitter:
        await until(lambda: town.holder() == "admitter-0", "a leader")
        # The certificate's user has no rights in this cluster either.
        refused = await town.status(admitter.token_port, agent)
        assert refused[0] is grpc.StatusCode.PERMISSION_DENIED
        for token in (reader, stranger):
            status = await town.status(admitter.token_port, token)
            assert list(status.nodes) == []
        with pytest.raises(client.Refused, match=r"may not create gangs\.muster\.dev in namespace team-a"):
            await hear(submitter, a_gang())


async def hear(submitter, gang):
    async with submitter.admit(gang) as stream:
        return [state async for state in stream.states()]
