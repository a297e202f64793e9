"""GPU time of users, by the records of their jobs, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.database import Record, Tried
from hocket.cluster.live.user_history import attained_gpu_s
from tests.unit.cluster.live.clusters import live_job, running


def record(number: int, user: str, gpus: int, **changes: Any) -> Record:
    return Record(number=number, job=live_job(f"j{number}", gpus, user=user), arrival_s=0.0, **changes)


def test_each_attempt_counts_once_from_placement_to_end() -> None:
    tried = (Tried((0, 1), 1.0, 3.0, "killed"), Tried((0, 1), 5.0, 6.0, "killed"))
    found = attained_gpu_s(
        [
            record(1, "alice", 2, state="running", placed_s=10.0, tried=tried),
            record(2, "alice", 1, state="finished", placed_s=4.0, finish_s=11.0),
            record(3, "bob", 2, state="queued", placed_s=5.0, tried=tried),
            record(4, "bob", 2, state="cancelled", placed_s=5.0, finish_s=9.0, tried=tried),
            record(5, "carol", 4),
        ],
        now_s=14.0,
    )
    assert found == {"alice": 2 * (2 + 1 + 4) + 7, "bob": 2 * (2 + 1) * 2, "carol": 0}


@pytest.mark.timeout(200)
def test_the_next_manager_goes_on_counting(tmp_path: Path) -> None:
    waits = ("sh", "-c", "sleep 1000")
    jobs = [live_job("a", 2, command=waits, user="alice"), live_job("b", 1, command=waits, user="bob")]
    with running(tmp_path, jobs, policy="fair-share", until_idle=False, keep=True) as cluster:
        cluster.until(lambda s: all(job.state == "running" for job in s.jobs))
        placed_s = {job.id: job.placed_s for job in cluster.status().jobs}
    with running(tmp_path, policy="fair-share", until_idle=False) as cluster:
        driver, now_s = cluster.manager._context.driver, cluster.status().now_s
        had = {}
        for job, user in (("a", "alice"), ("b", "bob")):
            row = driver.state.users[int(driver.state.jobs[driver.progress_of[job].row]["user"])]
            had[user] = float(row["attained"]) * 1e-9 + int(row["held"]) * (now_s - int(row["since"]) * 1e-9)
        assert had["alice"] == pytest.approx(2 * (now_s - (placed_s["a"] or 0.0)), rel=1e-6)
        assert had["bob"] == pytest.approx(now_s - (placed_s["b"] or 0.0), rel=1e-6)
