"""Tiresias's 2D-LAS: least attained service first, time x GPUs (Gu et al., NSDI 2019, section 3.2).

For schedulers that do not know how long a job will take. One transfer on a server, as in SRSF(1).

Differs from the paper
----------------------
* Attained service is not put into a few discrete levels. They save checkpoints when jobs are preempted; here
  jobs keep their GPUs' memory, and who goes next is decided between tasks, at no cost.
* What counts is the service of complete iterations, transfers included if the job is on several servers.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import SERVICE_ATTAINED, SchedulingPolicy
from hocket.kernel import lean_kernel

TIRESIAS = SchedulingPolicy(name="tiresias", order=SERVICE_ATTAINED)


@lean_kernel
def attained_service(complete, per_iteration, gpus):
    """Ticks of service that ``complete`` iterations took; ``per_iteration`` on each of so many GPUs."""
    return complete * per_iteration * gpus
