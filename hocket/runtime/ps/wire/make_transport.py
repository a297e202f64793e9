"""The transport that a job asks for."""

from __future__ import annotations

from hocket.errors import HocketError
from hocket.launch import ServedJob
from hocket.runtime.ps.wire.gloo_transport import GlooTransport
from hocket.runtime.ps.wire.rendezvous import Rendezvous
from hocket.runtime.ps.wire.transport import Transport


def make_transport(job: ServedJob, rendezvous: Rendezvous, host: str, *, server: bool) -> Transport:
    """This process's end of a pair, whose other end is being made now; it listens on ``host`` alone.

    Raises
    ------
    TransportError
        When the other side does not connect.
    HocketError
        When the transport is not installed.
    """
    if job.transport == "gloo":
        return GlooTransport(rendezvous, 0 if server else 1, host, job.timeout_s)
    try:
        from hocket.runtime.ps.wire.grpc_transport import GrpcServerEnd, GrpcWorkerEnd
    except ImportError:
        raise HocketError(
            "transport 'grpc' needs grpcio; pip install '.[grpc]' in a clone of Hocket"
        ) from None
    if server:
        return GrpcServerEnd(rendezvous, host, job.timeout_s, job.window_bytes)
    return GrpcWorkerEnd(rendezvous, job.timeout_s, job.window_bytes)
