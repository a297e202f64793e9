"""FIFO: jobs in the order of their arrival, in the queue, on links and on GPUs; one transfer on a server.

It differs from SRSF(1) in the order alone, so that what the order does can be seen.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import ARRIVAL, SchedulingPolicy

FIFO = SchedulingPolicy(name="fifo", order=ARRIVAL)
