"""Tiresias' trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cluster.traces.small_traces import TIRESIAS, imported


def test_tiresias_computes_as_jobs_with_one_gpu_did(trace: Path) -> None:
    trace.write_text(TIRESIAS)
    found = imported("tiresias", trace)
    jobs = {job.id: job for job in found.jobs.jobs}
    assert list(jobs) == ["a", "b", "c", "d", "e"]
    assert [job.arrival_s for job in jobs.values()] == [0, 25, 35, 36, 37]
    # vgg16 on one GPU: 118 / 500 and 26 / 100; alexnet on several only: the least.
    for name, seconds in (("a", 0.248), ("b", 0.248), ("c", 0.248), ("d", 0.4), ("e", 0.4)):
        assert jobs[name].forward_s + jobs[name].backward_s == pytest.approx(seconds)
    assert jobs["b"].forward_s == pytest.approx(0.4 * 0.248)
    assert (jobs["b"].gpus, jobs["b"].iterations, jobs["b"].size_bytes) == (2, 100, 4 * 138_357_544)
    assert any("alexnet" in note for note in found.notes)
