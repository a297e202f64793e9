"""GPU time of users, by the records of their jobs, also after a restart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.policies.fair_share import attained_by
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.driver import Driver
from hocket.cluster.live.job_record import Record, Tried
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


def test_with_a_half_life_it_counts_as_the_engine_does() -> None:
    """One job of four attempts, the last under way; an engine that saw them, and one that is told of them."""
    stays = [(0.0, 3.0), (4.0, 4.5), (20.0, 31.0), (40.0, 1e9)]
    tried = tuple(Tried((0, 1), start_s, end_s, "killed") for start_s, end_s in stays[:-1])
    found = attained_gpu_s([record(1, "alice", 2, state="running", placed_s=40.0, tried=tried)], 50.0, 8.0)
    by_hand = 2 * sum(
        8.0 / math.log(2.0) * (2 ** (-max(0.0, 50.0 - end_s) / 8.0) - 2 ** (-(50.0 - start_s) / 8.0))
        for start_s, end_s in stays
    )
    assert found["alice"] == pytest.approx(by_hand, rel=1e-12)
    scheduling = Scheduling(placement="ls", policy="fair-share", half_life_s=8.0)
    driver = Driver(Cluster(num_servers=1, gpus_per_server=2), scheduling)
    for start_s, end_s in stays:
        driver.add([live_job("j1", 2, user="alice")], [0], [False], [0])
        driver.arrive("j1")
        assert driver.decide(start_s).placements
        if end_s < 50.0:
            driver.withdraw("j1", end_s)
    assert _attained_gpu_s(driver, 50.0, 8.0) == pytest.approx(by_hand, rel=1e-9)
    told = Driver(Cluster(num_servers=1, gpus_per_server=2), scheduling)
    told.set_attained(found, 50.0)
    told.add([live_job("j2", 2, user="alice")], [0], [False], [0])
    assert _attained_gpu_s(told, 58.0, 8.0) == pytest.approx(by_hand / 2, rel=1e-9)


def _attained_gpu_s(driver: Driver, now_s: float, half_life_s: float) -> float:
    return float(attained_by(driver.state.users, 0, half_life_s * 1e9, round(now_s * 1e9))) * 1e-9


@pytest.mark.timeout(200)
def test_the_next_manager_goes_on_counting(tmp_path: Path) -> None:
    waits = ("sh", "-c", "sleep 1000")
    jobs = [live_job("a", 2, command=waits, user="alice"), live_job("b", 1, command=waits, user="bob")]
    with running(tmp_path, jobs, policy="fair-share", until_idle=False, keep=True) as cluster:
        placed_s = {job.id: job.placed_s for job in cluster.until_ranks_run().jobs}
    with running(tmp_path, policy="fair-share", until_idle=False) as cluster:
        driver, now_s = cluster.manager._context.driver, cluster.status().now_s
        had = {}
        for job, user in (("a", "alice"), ("b", "bob")):
            row = driver.state.users[int(driver.state.jobs[driver.progress_of[job].row]["user"])]
            had[user] = float(row["attained"]) * 1e-9 + int(row["held"]) * (now_s - int(row["since"]) * 1e-9)
        assert had["alice"] == pytest.approx(2 * (now_s - (placed_s["a"] or 0.0)), rel=1e-6)
        assert had["bob"] == pytest.approx(now_s - (placed_s["b"] or 0.0), rel=1e-6)
