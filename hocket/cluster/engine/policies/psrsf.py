"""PSRSF: SRSF that preempts transfers, at the end of their chunks.

A server carries one transfer at a time. Transfers travel in chunks, each with a startup of its own; at the
end of one, its links go to the first transfer in SRSF order that wants them.

Claims on links: in SRSF order, each job that is ready to transfer or does so claims its servers,
unless a job before it has claimed one of them. A transfer that runs and has no claim stops at the end of its
chunk, one that has a claim starts as soon as its servers carry none.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import BY_SERVICE, SchedulingPolicy

PSRSF = SchedulingPolicy(name="psrsf", admission=BY_SERVICE)
