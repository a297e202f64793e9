"""Strict FIFO: as FIFO, but no job is placed before one that arrived earlier and does not fit.

No job waits for later ones, and GPUs stay idle while the first job in the queue waits for more of them.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import ARRIVAL, SchedulingPolicy

STRICT_FIFO = SchedulingPolicy(name="strict-fifo", order=ARRIVAL, passes_over=False)
