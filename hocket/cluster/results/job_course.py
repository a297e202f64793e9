"""The course of a job at its best: alone, on as few servers as hold it; what its bound is made of."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from hocket.cluster.cluster import Cluster
from hocket.cluster.jobs import Job


class JobCourse(NamedTuple):
    """A job's least times in seconds, whoever decides; of a job that fits into a server without transfers.

    ``alone_s``: from its GPUs to its end. ``links_use``: seconds of links that its bytes take, of all
    its servers together; ``gpus_use``: of GPUs that its computing takes, ``held_s``: that it has them.
    ``bytes_after_s``: from its GPUs to the first byte. ``gpu_tail_s``,
    ``link_tail_s``: from the mean moment of its computing, and of its bytes, to its end.
    """

    alone_s: float
    held_s: float
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
        alone_s = job.startup_s + n * computing
        return JobCourse(alone_s, job.gpus * alone_s, gpus_use, n * computing / 2)
    bytes_s = cluster.per_byte_s * job.size_bytes
    transfers = cluster.startup_s * max(1, len(job.batches)) + bytes_s
    links_use = servers * n * bytes_s
    if not job.batches:
        # Computing, transfer, computing, transfer: none beside another.
        period = computing + transfers
        alone_s = job.startup_s + n * period
        return JobCourse(
            alone_s=alone_s,
            held_s=job.gpus * alone_s,
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
    alone_s = job.startup_s + max(n * computing, first_s + n * transfers, (n - 1) * computing + last_s)
    later = max((n - 1) / 2 * transfers, (n - 1) * (n - 2) / (2 * n) * computing)
    return JobCourse(
        alone_s=alone_s,
        held_s=job.gpus * alone_s,
        gpus_use=gpus_use,
        gpu_tail_s=(n - 1) / 2 * max(computing, transfers) + computing / 2,
        links_use=links_use,
        bytes_after_s=job.startup_s + first_s,
        link_tail_s=later + bytes_s / 2,
    )


def least_course(job: Job, widest: int, cluster: Cluster) -> JobCourse:
    """The least of each of a job's times by itself, with any number of GPUs that it may have, to ``widest``.

    More GPUs have no more iterations, so the times are least with the most GPUs, inside one server or on
    several. What it uses is at least its work: n GPUs have n iterations of one GPU in each of theirs.
    """
    fewest, most, per_server = job.fewest_gpus, min(job.gpus, widest), cluster.gpus_per_server
    if fewest == job.gpus:
        return course_of(job, cluster)
    numbers = {most, per_server} if fewest <= per_server < most else {most}
    courses = [
        course_of(
            msgspec.structs.replace(job, gpus=num, gpus_min=None, iterations=job.iterations_on(num)), cluster
        )
        for num in numbers
    ]
    least = JobCourse(*(min(values) for values in zip(*courses, strict=True)))
    work, computing = job.iterations * job.gpus, job.forward_s + job.backward_s
    servers = -(-fewest // per_server)
    iterations_of_servers = 0 if servers == 1 else max(work / per_server, servers * job.iterations_on(most))
    return least._replace(
        held_s=fewest * job.startup_s + work * computing,
        gpus_use=work * computing,
        links_use=iterations_of_servers * cluster.per_byte_s * job.size_bytes,
    )
