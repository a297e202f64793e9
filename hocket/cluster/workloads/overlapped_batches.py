"""Transfers of generated jobs, cut so that they overlap computing, as Caramel would have them.

Assumed, since Table III of the contention paper gives a model's times and size alone: gradients travel in
buckets of 25 MiB (what PyTorch's DistributedDataParallel does), filled from the last layer on, each with the
share of the model's bytes and multiply-adds that its layers have in our zoo. A pass takes time in proportion
to multiply-adds. Which buckets travel beside the backward pass and which beside the next forward pass, and in
which order, is Caramel's placement (section 4.3) on a network that the job has for itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from hocket.cluster.cluster import PER_BYTE_S, STARTUP_S
from hocket.cluster.jobs import Batch, Job, JobSet
from hocket.errors import UnknownNameError
from hocket.planner.caramel.batch_placement import BatchTimes, place_batches


class LayerShare(NamedTuple):
    """Neighbouring layers: their shares of the model's bytes and of its multiply-adds."""

    bytes: float
    work: float


# From the first layers to the last; a test counts them again.
BUCKETS: dict[str, tuple[LayerShare, ...]] = {
    "vgg16": (
        LayerShare(0.0040, 0.3643),
        LayerShare(0.0512, 0.5380),
        LayerShare(0.0512, 0.0897),
        LayerShare(0.7427, 0.0066),
        LayerShare(0.1509, 0.0013),
    ),
    "resnet50": (
        LayerShare(0.1695, 0.5890),
        LayerShare(0.2673, 0.2370),
        LayerShare(0.2671, 0.0959),
        LayerShare(0.2961, 0.0781),
    ),
    "inception_v3": (
        LayerShare(0.2378, 0.6971),
        LayerShare(0.2417, 0.2037),
        LayerShare(0.2754, 0.0836),
        LayerShare(0.2451, 0.0157),
    ),
    "lstm_ptb": (
        LayerShare(0.2272, 0.0000),
        LayerShare(0.2728, 0.3530),
        LayerShare(0.2728, 0.3530),
        LayerShare(0.2273, 0.2940),
    ),
}


def with_overlap(jobs: JobSet, *, startup_s: float = STARTUP_S, per_byte_s: float = PER_BYTE_S) -> JobSet:
    """``jobs``, of Table III's models, with batches; a transfer takes startup_s + per_byte_s a byte.

    Raises
    ------
    UnknownNameError
        When a job's model is none whose layers are known.
    """
    cut = tuple(
        msgspec.structs.replace(job, batches=_batches_of(job, startup_s, per_byte_s)) for job in jobs.jobs
    )
    return JobSet(jobs=cut, source=f"{jobs.source}, overlapping")


def _batches_of(job: Job, startup_s: float, per_byte_s: float) -> tuple[Batch, ...]:
    if job.model not in BUCKETS:
        raise UnknownNameError("model with known layers", job.model, list(BUCKETS))
    return _travelling_batches(
        job.model, job.forward_s, job.backward_s, job.size_bytes, startup_s, per_byte_s
    )


@lru_cache(maxsize=4096)
def _travelling_batches(
    model: str, forward_s: float, backward_s: float, size_bytes: float, startup_s: float, per_byte_s: float
) -> tuple[Batch, ...]:
    """The model's buckets as batches, in the order in which they travel."""
    shares = np.array(BUCKETS[model])
    shares /= shares.sum(axis=0)  # they are rounded
    before = np.cumsum(shares[:, 1]) - shares[:, 1]
    sizes = size_bytes * shares[:, 0]
    batches = BatchTimes(
        sizes=np.rint(sizes).astype(np.int64),
        ready_s=forward_s + backward_s * (1 - before),
        used_s=forward_s * before,
        travel_s=startup_s + per_byte_s * sizes,
    )
    beside_backward, beside_forward = place_batches(batches, forward_s + backward_s)
    return tuple(
        Batch(
            size_bytes=float(sizes[k]),
            ready_s=float(batches.ready_s[k]),
            due_s=float(batches.used_s[k]) if i >= len(beside_backward) else 0.0,
        )
        for i, k in enumerate(beside_backward + beside_forward)
    )
