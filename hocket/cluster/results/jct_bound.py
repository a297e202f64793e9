"""A bound of the average JCT: no policy and no placement is below it, of a job set on a cluster.

Whoever decides, and though all were known in advance:

* **Alone.** A job of n GPUs is on n / (GPUs of a server) servers at least. If that is one it computes, and
  else it transfers as well; it takes no less than with GPUs and links for itself, of the type of GPU on which
  it computes fastest. Of one that may have fewer GPUs each figure is the least of all its numbers, by itself:
  no choice of numbers is below that.
* **One fast machine.** Take what some jobs need of one resource: GPUs' time to compute, links' time for their
  bytes (of each server that a job needs; Eq. 5 and max-min sharing let no link carry more than 1 / b bytes a
  second), memory for as long as they take alone, and places on GPUs where a limit says how many jobs share
  one. In each second the cluster gives no more of it than it has. A machine that gives all it has to one job
  at a time, and changes it at will, can do what the cluster does, second by second.
* **Mean moments.** On that machine each unit of a job's use has a moment. The sum over jobs of the mean
  moment of each job's use is least if always the job goes first that uses least in all: let a unit of another
  job change places with a later one of this job, and this job's mean falls by more than the other's rises.
  No job ends at the mean moment of its use: half of its iterations, about, are still to come, each of which
  takes some time at its best (:mod:`hocket.cluster.results.job_course`). Mean moment and this *tail* together
  are less than its end. So the sums of these over jobs are no more than the sum of the jobs' ends.

A sum may be made of groups: what one group needs is not less beside another. Jobs that need several servers
are one group, the others the other one; for each the largest sum of the resources' counts, or that of both
together if that is larger. Left out are racks' uplinks, that a job needs GPUs and links both, and that GPUs,
links and memory cannot be divided at will. So the bound may be out of reach.

Durations are as in the job set: a simulation rounds each to a tick, by less than a thousandth of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.paces import types_of
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.results.job_course import JobCourse, least_course
from hocket.cluster.results.mean_moments import mean_moments

Floats = npt.NDArray[np.float64]


class _Need(NamedTuple):
    """Of one resource, what each job uses, from when on, and how long after its mean moment it ends."""

    capacity: float  # that the cluster has, units
    use: Floats  # (J,) units times seconds
    from_s: Floats
    tail_s: Floats


def bound_jct_s(jobs: JobSet, cluster: Cluster, jobs_per_gpu: int | None = None) -> float:
    """Seconds that the average JCT of ``jobs`` is not below; ``jobs_per_gpu``: the most that share a GPU."""
    alone_s, needs, links = _needs(jobs.jobs, cluster, jobs_per_gpu)
    arrival_s = np.array([job.arrival_s for job in jobs.jobs])
    wide = links.use > 0

    def largest(group: npt.NDArray[np.bool_], needs: Sequence[_Need]) -> float:
        if not group.any():
            return 0.0
        sums = [float(alone_s[group].sum())]
        for need in needs:
            mean_s = mean_moments(need.use[group], need.from_s[group], need.capacity)
            sums.append(float((mean_s + need.tail_s[group] - arrival_s[group]).sum()))
        return max(sums)

    apart = largest(wide, [*needs, links]) + largest(~wide, needs)
    return max(apart, largest(np.ones(len(wide), bool), needs)) / len(wide)


def _at_its_best(job: Job, cluster: Cluster) -> JobCourse:
    """The least times of a job, on the type of GPU on which it computes fastest."""
    types = types_of(job, cluster)
    fastest = min(types.values(), key=lambda each: each.forward_s + each.backward_s)
    return least_course(fastest, max(cluster.types[kind].num_gpus for kind in types), cluster)


def _needs(
    jobs: Sequence[Job], cluster: Cluster, jobs_per_gpu: int | None
) -> tuple[Floats, list[_Need], _Need]:
    """Seconds of each job alone, needs that all jobs have, and that of links."""
    courses = np.array([_at_its_best(job, cluster) for job in jobs])
    alone_s, held_s, gpus_use, gpu_tail_s, links_use, bytes_after_s, link_tail_s = courses.T
    arrival_s, startup_s, memory = np.array(
        [(job.arrival_s, job.startup_s, job.memory_bytes) for job in jobs]
    ).T
    num_gpus = cluster.num_gpus
    needs = [_Need(num_gpus, gpus_use, arrival_s + startup_s, gpu_tail_s)]
    if (memory > 0).all():
        total_bytes = sum(each.num_gpus * each.memory_bytes for each in cluster.types)
        needs.append(_Need(total_bytes, held_s * memory, arrival_s, alone_s / 2))
    if jobs_per_gpu is not None:
        needs.append(_Need(num_gpus * jobs_per_gpu, held_s, arrival_s, alone_s / 2))
    links = _Need(cluster.num_servers, links_use, arrival_s + bytes_after_s, link_tail_s)
    return alone_s, needs, links
