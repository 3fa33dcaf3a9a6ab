"""Who calls, and may it: clients may ask, nodes may only feed.

The name is the certificate's SAN URI (muster/tls.py); nothing in a message can change it. A node's certificate is refused
here, so that a stolen one can report its node and read nobody's gangs.
"""

from typing import Any

import grpc

from muster import tls


async def require_client(context: "grpc.aio.ServicerContext[Any, Any]") -> str:
    """Return the client's name, or end the call."""
    peer = context.auth_context()
    if client := tls.peer_client(peer):
        return client
    if node := tls.peer_node(peer):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"node {node} may only feed")
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate carries no muster:client: name")
    raise AssertionError("abort returned")
