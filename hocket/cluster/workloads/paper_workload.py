"""The contention paper's workload: jobs of a cluster's busy twenty minutes.

Source: Wang et al. 2020, section V-A and Table III.

Differs from the paper: its job set was drawn at random and not published, so each seed gives another one of
its kind. "Uniform arrivals, refined until there are 160 of them" are here as many arrivals, each uniform over
the seconds of the period (the text sums them up to 1440 once; its period is 1200 s).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.workloads.trained_models import TABLE_III
from hocket.errors import HocketError

Sizes = Literal["paper", "wide"]

# GPUs of a job, and how many of 160 jobs want as many.
_MIX = ((1, 80), (2, 14), (4, 26), (8, 30), (16, 8), (32, 2))
_ITERATIONS = (1000, 6000)
_WIDE_BYTES = (5e6, 1500e6)
_MOST_JOBS = 1_000_000
_LONGEST_S = 10**9


def paper_workload(
    *, seed: int = 0, num_jobs: int = 160, sizes: Sizes = "paper", period_s: int = 1200
) -> JobSet:
    """Draw a job set; jobs are in order of arrival.

    num_jobs : other numbers than 160 keep the shares of the numbers of GPUs, rounded.
    sizes : "paper": each model's own; "wide": log-uniform from 5 MB to 1500 MB, the jobs otherwise the same.
    period_s : jobs arrive at whole seconds from 1 to this.

    Raises
    ------
    HocketError
        For a number of jobs, seconds or a seed out of range.
    """
    if not 1 <= num_jobs <= _MOST_JOBS:
        raise HocketError(f"{num_jobs} jobs are not between 1 and {_MOST_JOBS}; the paper's number is 160")
    if not 1 <= period_s <= _LONGEST_S:
        raise HocketError(f"a period of {period_s} s is not between 1 and 1e9 whole seconds; give e.g. 1200s")
    if seed < 0:
        raise HocketError(f"seed {seed} is negative; give 0 or more")
    rng = np.random.default_rng(seed)
    gpus = rng.permutation(np.repeat([width for width, _ in _MIX], _counts(num_jobs)))
    models = rng.integers(len(TABLE_III), size=num_jobs)
    iterations = rng.integers(*_ITERATIONS, size=num_jobs, endpoint=True)
    arrivals = np.sort(rng.integers(1, period_s, size=num_jobs, endpoint=True))
    # Drawn last, so that the rest does not depend on it.
    low, high = _WIDE_BYTES
    drawn = np.round(np.exp(rng.uniform(math.log(low), math.log(high), size=num_jobs)))
    jobs = []
    for i in range(num_jobs):
        model = TABLE_III[models[i]]
        jobs.append(
            Job(
                id=f"j{i}",
                model=model.name,
                gpus=int(gpus[i]),
                iterations=int(iterations[i]),
                arrival_s=float(arrivals[i]),
                forward_s=model.forward_s,
                backward_s=model.backward_s,
                size_bytes=float(drawn[i]) if sizes == "wide" else model.size_bytes,
                memory_bytes=model.memory_bytes,
            )
        )
    return JobSet(jobs=tuple(jobs), source=f"{sizes} workload, seed {seed}")


def _counts(num_jobs: int) -> list[int]:
    """Jobs of ``num_jobs`` for each number of GPUs: the mix in proportion, by largest remainder."""
    whole = sum(count for _, count in _MIX)
    shares = [num_jobs * count / whole for _, count in _MIX]
    counts = [math.floor(share) for share in shares]
    by_remainder = sorted(range(len(_MIX)), key=lambda k: counts[k] - shares[k])
    for k in by_remainder[: num_jobs - sum(counts)]:
        counts[k] += 1
    return counts
