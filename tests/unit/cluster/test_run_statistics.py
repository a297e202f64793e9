"""The figures of a run, worked out by hand for a small one made by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.results.run_statistics import ClusterRow, cluster_row, figures_of
from hocket.cluster.simulator.simulate import ClusterRun

CLUSTER = Cluster(num_servers=2, gpus_per_server=1)


def some_jobs(count: int) -> JobSet:
    fields: dict[str, Any] = {
        **{"model": "m", "gpus": 1, "iterations": 1, "arrival_s": 0.0},
        **{"forward_s": 1.0, "backward_s": 1.0, "size_bytes": 1.0, "memory_bytes": 1.0},
    }
    return JobSet(jobs=tuple(Job(id=f"j{i}", **fields) for i in range(count)), source="three.json")


def some_run(**changes: Any) -> ClusterRun:
    fields: dict[str, Any] = {
        "scheduling": Scheduling(placement="ff", policy="srsf-2", seed=4),
        "arrival_s": np.array([0.0, 10.0, 20.0]),
        "start_s": np.array([0.0, 12.0, 20.0]),
        "finish_s": np.array([30.0, 70.0, 40.0]),
        "gpus": (((0, 0),), ((0, 0), (1, 0)), ((1, 0),)),
        "queueing_s": np.array([0.0, 2.0, 0.0]),
        "computing_s": np.array([30.0, 28.0, 14.0]),
        "gpu_wait_s": np.array([0.0, 10.0, 6.0]),
        "transferring_s": np.array([0.0, 15.0, 0.0]),
        "network_wait_s": np.array([0.0, 5.0, 0.0]),
        "busy_gpu_s": 100.0,
        "makespan_s": 70.0,
        "gpu_utilization": 100 / 140,
        "events": 9,
        "wall_s": 0.5,
    }
    return ClusterRun(**fields | changes)


def test_completion_times_and_what_they_went_to() -> None:
    figures = figures_of(some_run())
    # Completion times 30, 60 and 20.
    assert figures.average_jct_s == pytest.approx(110 / 3)
    assert figures.median_jct_s == 30.0
    assert figures.p95_jct_s == pytest.approx(57.0)
    assert (figures.gpu_utilization, figures.makespan_s) == (pytest.approx(5 / 7), 70.0)
    parts = (
        *(figures.average_queueing_s, figures.average_computing_s, figures.average_gpu_wait_s),
        *(figures.average_transferring_s, figures.average_network_wait_s),
    )
    assert parts == pytest.approx((2 / 3, 24.0, 16 / 3, 5.0, 5 / 3))
    assert sum(part or 0.0 for part in parts) == pytest.approx(figures.average_jct_s)


def test_a_row_says_what_became_of_each_job() -> None:
    row = cluster_row(some_run(), some_jobs(3), CLUSTER)
    assert (row.placement, row.policy, row.source, row.seed) == ("ff", "srsf-2", "three.json", 4)
    assert (row.servers, row.gpus_per_server, row.events, row.contention) == (2, 1, 9, None)
    second = row.jobs[1]
    assert (second.id, second.start_s, second.finish_s, second.jct_s) == ("j1", 12.0, 70.0, 60.0)
    assert second.gpus == ((0, 0), (1, 0))
    assert (second.gpu_wait_s, second.network_wait_s) == (10.0, 5.0)
    assert row.percentiles is not None
    assert row.percentiles.p75_s == pytest.approx(45.0)
    assert msgspec.json.decode(msgspec.json.encode(row), type=ClusterRow) == row


def test_a_row_says_on_which_type_of_gpu_each_job_was() -> None:
    types = (GpuType(name="v100", num_gpus=1), GpuType(name="a100", num_gpus=1))
    run = some_run(gpus=(((0, 0),), ((1, 0),), ((1, 0),)))
    row = cluster_row(run, some_jobs(3), dataclasses.replace(CLUSTER, gpu_types=types))
    assert [job.gpu_type for job in row.jobs] == ["v100", "a100", "a100"]
    assert [job.gpu_type for job in cluster_row(run, some_jobs(3), CLUSTER).jobs] == [""] * 3


def contention(levels: list[tuple[float, float]]) -> tuple[float, list[float], list[int]]:
    row = cluster_row(some_run(levels=np.array(levels)), some_jobs(3), CLUSTER)
    assert row.contention is not None
    assert row.contention.begin_s == levels[0][0]
    return row.contention.bin_s, list(row.contention.mean), list(row.contention.most)


def test_contention_is_averaged_over_equal_parts_of_the_time() -> None:
    # One transfer from 10 to 25, two from 25 to 40, none to the end at 70: sixty seconds in 240 parts.
    bin_s, mean, most = contention([(10.0, 1.0), (25.0, 2.0), (40.0, 0.0)])
    assert bin_s == pytest.approx(0.25)
    assert mean == pytest.approx([1.0] * 60 + [2.0] * 60 + [0.0] * 120)
    assert most == [1] * 60 + [2] * 60 + [0] * 120


def test_contention_within_one_part_counts_for_as_long_as_it_lasts() -> None:
    # Of the first quarter of a second: 0.05 s with three transfers, 0.1 s with one, the rest without.
    bin_s, mean, most = contention([(10.0, 0.0), (10.05, 3.0), (10.1, 1.0), (10.2, 0.0), (69.9, 1.0)])
    assert mean[0] == pytest.approx((0.05 * 3 + 0.1) / bin_s)
    assert most[0] == 3
    assert mean[-1] == pytest.approx(0.1 / bin_s)
    assert mean[1:-1] == pytest.approx([0.0] * 238)


def test_the_mean_of_all_parts_is_that_of_all_the_time() -> None:
    rng = np.random.default_rng(3)
    times = np.sort(rng.uniform(0, 60, 500))
    values = rng.integers(0, 4, 500).astype(float)
    whole = float((values * np.diff(times, append=70.0)).sum())
    bin_s, mean, most = contention(list(zip(times.tolist(), values.tolist(), strict=True)))
    assert sum(mean) * bin_s == pytest.approx(whole, rel=1e-4)
    assert all(level <= top + 1e-9 for level, top in zip(mean, most, strict=True))


def test_nothing_recorded_is_no_contention() -> None:
    row = cluster_row(some_run(levels=np.zeros((0, 2))), some_jobs(3), CLUSTER)
    assert row.contention is None
