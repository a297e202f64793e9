"""The course of a job at its best: alone, on as few servers as hold it; what its bound is made of."""

from __future__ import annotations

from typing import NamedTuple

from hocket.cluster.cluster import Cluster
from hocket.cluster.jobs import Job


class JobCourse(NamedTuple):
    """A job's least times in seconds, whoever decides; of a job that fits into a server without transfers.

    ``alone_s``: from its GPUs to its end. ``links_use``: seconds of links that its bytes take, of all
    its servers together. ``bytes_after_s``: from its GPUs to the first byte. ``gpu_tail_s``,
    ``link_tail_s``: from the mean moment of its computing, and of its bytes, to its end.
    """

    alone_s: float
    gpus_use: float
    gpu_tail_s: float
    links_use: float = 0.0
    bytes_after_s: float = 0.0
    link_tail_s: float = 0.0


def course_of(job: Job, cluster: Cluster) -> JobCourse:
    """The least times of ``job``.

    Iteration i of n, from 1, has ended all that it does on the GPUs (or sends) at some moment before the
    job's end; n - i iterations are still to come then, each a *period* at least. The mean over its iterations
    of the mean moment of each is so long before the end as the tail says.
    """
    n, computing = job.iterations, job.forward_s + job.backward_s
    servers = -(-job.gpus // cluster.gpus_per_server)
    gpus_use = job.gpus * n * computing
    if servers == 1:
        return JobCourse(job.startup_s + n * computing, gpus_use, n * computing / 2)
    bytes_s = cluster.per_byte_s * job.size_bytes
    transfers = cluster.startup_s * max(1, len(job.batches)) + bytes_s
    links_use = servers * n * bytes_s
    if not job.batches:
        # Computing, transfer, computing, transfer: none beside another.
        period = computing + transfers
        return JobCourse(
            alone_s=job.startup_s + n * period,
            gpus_use=gpus_use,
            gpu_tail_s=(n - 1) / 2 * period + transfers + computing / 2,
            links_use=links_use,
            bytes_after_s=job.startup_s + computing,
            link_tail_s=(n - 1) / 2 * period + bytes_s / 2,
        )
    # Beside each other: GPUs compute one iteration after the other, batches travel one after the other. Those
    # of an iteration are complete, and travel, after it began; its last bytes are there before its successor
    # has computed, so of computing n - i - 1 iterations are sure to come after them.
    first_s, last_s = (min(batch.ready_s, computing) for batch in (job.batches[0], job.batches[-1]))
    last_s += cluster.startup_s + cluster.per_byte_s * job.batches[-1].size_bytes
    alone_s = max(n * computing, first_s + n * transfers, (n - 1) * computing + last_s)
    later = max((n - 1) / 2 * transfers, (n - 1) * (n - 2) / (2 * n) * computing)
    return JobCourse(
        alone_s=job.startup_s + alone_s,
        gpus_use=gpus_use,
        gpu_tail_s=(n - 1) / 2 * max(computing, transfers) + computing / 2,
        links_use=links_use,
        bytes_after_s=job.startup_s + first_s,
        link_tail_s=later + bytes_s / 2,
    )
