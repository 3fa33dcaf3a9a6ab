"""A town on a real API server: agents' pods and tokens, users and their rights, admitters that stand for one Lease."""

import asyncio
import contextlib
import os
import pathlib
import signal
import sys

import grpc
from lightkube.models import authentication_v1, core_v1, meta_v1, rbac_v1
from lightkube.resources import authentication_v1 as authentication
from lightkube.resources import coordination_v1, rbac_authorization_v1
from lightkube.resources import core_v1 as core

from muster import bearer, tls
from muster.model import protocol
from muster.pb.muster.v1 import inspect_pb2, inspect_pb2_grpc
from tests import feedworld
from tests.admitter.admitters import Town

AUDIENCE = "muster-admitter"
LEASE = "muster-admitter"
PROGRAM = pathlib.Path(sys.executable).parent / "muster-admitter"


class KubeTown(Town):
    """A town in one namespace: its agents run as the namespace's `agent`, its Lease lies there."""

    def __init__(self, folder, cluster, client, namespace):
        super().__init__(folder)
        self.cluster, self.kube, self.namespace = cluster, client, namespace
        self.account("agent")

    def settings(self, **settings):
        return {
            "kubeconfig": self.cluster.kubeconfig,
            "token_listen": "127.0.0.1:0",
            "agent_account": f"{self.namespace}/agent",
            "lease_namespace": self.namespace,
            "lease_seconds": 3.0,
            "new_term_grace_seconds": 0.0,
            # Several admitters of one town, and of other tests, share the cluster's Nodes.
            "node_conditions": False,
            **settings,
        }

    @contextlib.asynccontextmanager
    async def kube_admitter(self, **settings):
        """An admitter in this process whose watches all stand."""
        async with self.admitter(**self.settings(**settings)) as (running, address):
            await until(lambda: not running._kube.cluster.problems, "its watches")
            yield running, address

    def account(self, name):
        self.kube.create(core.ServiceAccount(metadata=meta_v1.ObjectMeta(name=name, namespace=self.namespace)))

    def pod_on(self, node, account="agent"):
        """A pod of an account, bound to a node; what it mounts and runs is nobody's business."""
        spec = core_v1.PodSpec(
            nodeName=node, serviceAccountName=account, containers=[core_v1.Container(name="main", image="none")]
        )
        name = f"{account}-{node}"
        metadata = meta_v1.ObjectMeta(name=name, namespace=self.namespace)
        return self.kube.create(core.Pod(metadata=metadata, spec=spec))

    def token(self, account="agent", *, pod=None, audience=AUDIENCE, seconds=600):
        """What kubelet would project into the pod; without an audience it is for the API server itself."""
        bound = None
        if pod is not None:
            bound = authentication_v1.BoundObjectReference(
                apiVersion="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid
            )
        spec = authentication_v1.TokenRequestSpec(
            audiences=[audience] if audience else [], expirationSeconds=seconds, boundObjectRef=bound
        )
        request = core.ServiceAccountToken(spec=spec, metadata=meta_v1.ObjectMeta(namespace=self.namespace))
        return self.kube.create(request, account, namespace=self.namespace).status.token

    def is_known(self, token):
        """Return whether the API server takes the token for its own audience."""
        review = authentication.TokenReview(spec=authentication_v1.TokenReviewSpec(token=token))
        return bool(self.kube.create(review).status.authenticated)

    def grant(self, account, verbs, resource):
        """Let an account of the namespace do this in it."""
        rule = rbac_v1.PolicyRule(apiGroups=["muster.dev"], resources=[resource], verbs=verbs)
        metadata = meta_v1.ObjectMeta(name=f"{account}-{resource}", namespace=self.namespace)
        self.kube.create(rbac_authorization_v1.Role(metadata=metadata, rules=[rule]))
        reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="Role", name=metadata.name)
        subject = rbac_v1.Subject(kind="ServiceAccount", name=account, namespace=self.namespace)
        self.kube.create(rbac_authorization_v1.RoleBinding(metadata=metadata, roleRef=reference, subjects=[subject]))

    def lease(self):
        return self.kube.get(coordination_v1.Lease, LEASE, namespace=self.namespace)

    @contextlib.asynccontextmanager
    async def token_channel(self, port):
        credentials = tls.open_channel_credentials(self.world.admitter.ca)
        options = (*tls.DIAL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
            yield channel

    @contextlib.asynccontextmanager
    async def token_wire(self, port, token):
        """A bare feed stream that shows a token."""
        async with self.token_channel(port) as channel:
            metadata = ((bearer.KEY, f"Bearer {token}"),) if token else ()
            call = channel.stream_stream(protocol.METHOD)(metadata=metadata)
            try:
                yield feedworld.Wire(call)
            finally:
                call.cancel()

    async def status(self, port, token):
        """Ask for the status; return the answer, or the code and words of the refusal."""
        async with self.token_channel(port) as channel:
            stub = inspect_pb2_grpc.InspectServiceStub(channel)
            try:
                return await stub.Status(
                    inspect_pb2.StatusRequest(), timeout=20, metadata=((bearer.KEY, f"Bearer {token}"),)
                )
            except grpc.aio.AioRpcError as error:
                return error.code(), error.details()

    @contextlib.asynccontextmanager
    async def program(self, name, **settings):
        """An admitter as a process of its own."""
        files = self.world.admitter
        given = self.settings(
            name=name,
            listen="127.0.0.1:0",
            metrics_address="127.0.0.1:0",
            tls_ca=files.ca,
            tls_certificate=files.certificate,
            tls_key=files.key,
            **settings,
        )
        arguments = [part for key, value in given.items() for part in (f"--{key.replace('_', '-')}", str(value))]
        log = (self.folder / f"{name}.log").open("w")
        process = await asyncio.create_subprocess_exec(PROGRAM, "run", *arguments, stderr=log, env={**os.environ})
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()
            log.close()

    def holder(self):
        """The name in the Lease, without what tells one process from another; empty: nobody."""
        try:
            return (self.lease().spec.holderIdentity or "").partition("_")[0]
        except Exception:  # noqa: BLE001 -- there is no Lease yet
            return ""


async def until(claim, what, seconds=60):
    """Wait, within generous bounds, for something that the cluster makes true."""
    try:
        async with asyncio.timeout(seconds):
            while not (answer := await asyncio.to_thread(claim)):  # noqa: ASYNC110 -- the cluster has no event for us
                await asyncio.sleep(0.05)
            return answer
    except TimeoutError:
        raise AssertionError(f"waited {seconds} s for {what}") from None
