"""SRPT: as PSRSF, but of the transfers the one with the fewest bytes left goes first.

Of one under way, what counts is what will be left at the end of its chunk, when it can be preempted. Jobs are
placed and compute in SRSF order.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import BY_BYTES, SchedulingPolicy
from hocket.cluster.engine.transfer_progress import bytes_after_chunk
from hocket.kernel import lean_kernel

SRPT = SchedulingPolicy(name="srpt", admission=BY_BYTES)


@lean_kernel
def fewer_bytes(jobs, rules, a, b, now):
    """True if job a's transfer goes before job b's."""
    bytes_a = bytes_after_chunk(jobs, rules, a, now)
    bytes_b = bytes_after_chunk(jobs, rules, b, now)
    return bytes_a < bytes_b or (bytes_a == bytes_b and jobs[a].rank < jobs[b].rank)
