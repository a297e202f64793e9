"""The cost of a reduction on one network, as a line over its bytes, whole or cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CollectiveCost:
    """One pattern on one network: what waits, what occupies the wire, what occupies the receiver.

    ``latency_s`` and ``handling_s`` are seconds a chunk, ``wire_s_per_byte`` and ``reduce_s_per_byte``
    seconds per byte of the reduced batch.
    """

    latency_s: float
    handling_s: float
    wire_s_per_byte: float
    reduce_s_per_byte: float

    def seconds(self, size_bytes: float, chunks: int = 1) -> float:
        """Seconds that ``size_bytes`` take in ``chunks`` equal chunks."""
        wire_s, reduce_s = self.wire_s_per_byte * size_bytes, self.reduce_s_per_byte * size_bytes
        return pipelined_s(self.latency_s, self.handling_s, wire_s, reduce_s, chunks)


def pipelined_s(latency_s: float, handling_s: float, wire_s: float, reduce_s: float, chunks: int) -> float:
    """Seconds of a reduction whose chunks share the wire and the receiver; plain, so that kernels take it."""
    receiver_s = handling_s + reduce_s / chunks
    return latency_s + max(wire_s + receiver_s, wire_s / chunks + chunks * receiver_s)
