"""The contention paper's workload: its numbers, drawn anew with each seed and alike with the same."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from hocket.cluster.jobs import Job
from hocket.cluster.workloads import paper_workload
from hocket.cluster.workloads.trained_models import FORWARD_SHARE, TABLE_III, estimated_memory_bytes
from hocket.errors import HocketError

TABLE = {model.name: model for model in TABLE_III}


def test_the_papers_mix_of_jobs() -> None:
    jobs = paper_workload(seed=3).jobs
    assert Counter(job.gpus for job in jobs) == {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
    assert all(1000 <= job.iterations <= 6000 for job in jobs)
    arrivals = [job.arrival_s for job in jobs]
    assert arrivals == sorted(arrivals)
    assert all(1 <= at <= 1200 and at == int(at) for at in arrivals)
    for job in jobs:
        model = TABLE[job.model]
        assert (job.size_bytes, job.memory_bytes) == (model.size_bytes, model.memory_bytes)
        assert (job.forward_s, job.backward_s) == (model.forward_s, model.backward_s)
    assert {job.model for job in jobs} == set(TABLE)


def test_iterations_and_arrivals_are_spread_over_their_ranges() -> None:
    jobs = [job for seed in range(20) for job in paper_workload(seed=seed).jobs]
    for values, low, high in (
        ([job.iterations for job in jobs], 1000, 6000),
        ([job.arrival_s for job in jobs], 1, 1200),
    ):
        # The mean and the spread of 3200 draws of a uniform distribution, within five standard errors.
        assert np.mean(values) == pytest.approx((low + high) / 2, abs=5 * (high - low) / np.sqrt(12 * 3200))
        assert np.std(values) == pytest.approx((high - low) / np.sqrt(12), rel=0.05)
        assert min(values) < low + 0.01 * (high - low)
        assert max(values) > high - 0.01 * (high - low)


def test_a_seed_decides_everything() -> None:
    assert paper_workload(seed=5) == paper_workload(seed=5)
    assert paper_workload(seed=5) != paper_workload(seed=6)


def test_wide_sizes_change_nothing_else() -> None:
    narrow, wide = paper_workload(seed=1).jobs, paper_workload(seed=1, sizes="wide").jobs

    def but_size(job: Job) -> Job:
        return msgspec.structs.replace(job, size_bytes=0.0)

    assert [but_size(job) for job in narrow] == [but_size(job) for job in wide]
    logs = np.log(
        [job.size_bytes for seed in range(20) for job in paper_workload(seed=seed, sizes="wide").jobs]
    )
    low, high = np.log(5e6), np.log(1500e6)
    assert low <= logs.min() <= logs.max() <= high
    assert logs.mean() == pytest.approx((low + high) / 2, abs=5 * (high - low) / np.sqrt(12 * 3200))


@pytest.mark.parametrize("count", [1, 2, 7, 16, 159, 161, 1600])
def test_other_numbers_of_jobs_keep_the_mix(count: int) -> None:
    jobs = paper_workload(num_jobs=count).jobs
    assert len(jobs) == count
    widths = Counter(job.gpus for job in jobs)
    for width, of_160 in ((1, 80), (2, 14), (4, 26), (8, 30), (16, 8), (32, 2)):
        assert abs(widths[width] - of_160 * count / 160) < 1


def test_the_period_is_the_last_arrival_that_can_be() -> None:
    assert max(job.arrival_s for job in paper_workload(period_s=10).jobs) == 10
    assert {job.arrival_s for job in paper_workload(period_s=1).jobs} == {1.0}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"num_jobs": 0}, "0 jobs are not between 1 and 1000000"),
        ({"period_s": 0}, "a period of 0 s"),
        ({"seed": -1}, "seed -1 is negative"),
    ],
)
def test_what_cannot_be_drawn(request_: dict[str, int], message: str) -> None:
    with pytest.raises(HocketError, match=message):
        paper_workload(**request_)  # type: ignore[arg-type]


def test_what_is_said_of_table_iii_holds() -> None:
    for model in TABLE_III:
        both_s = model.forward_s + model.backward_s
        assert model.forward_s / both_s == pytest.approx(FORWARD_SHARE, abs=1e-3)
        assert estimated_memory_bytes(model.size_bytes) == pytest.approx(model.memory_bytes, abs=0.8e9)
