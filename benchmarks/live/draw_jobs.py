"""A job set whose policies a live run can tell apart: the best of many that are drawn.

    python benchmarks/live/draw_jobs.py OUT.json [--sets 40000] [--seed 0]

Live runs are within some percent of the simulator's, so they can confirm a ranking only where policies differ
by more. Of the sets that are drawn, that one is kept whose policies differ most, each from the next one, in
the worst of many simulations with times, bytes and arrivals that are a few percent off. Nothing of this has
seen a live run. Average job completion times of the set that is kept go to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from against_simulator import TRIALS, average, simulated
from contention import Cost

from hocket.cluster.jobs import Job

JOBS, GPU_BYTES = 10, 6e9
STARTUP_S = 0.45  # of a replayed job's processes on a lab
FINALISTS, DRAWS = 100, 40
OFF, LATE_S = 0.03, 0.1  # how much computing and bytes are off, and how late jobs come

TRIAL = TRIALS["replayed"]
# As measured on a lab of this rate: 5% over the link's own, sharing as good as fair.
COST = Cost(a_s=0.2e-3, b_s_per_byte=1.05 * 8 / TRIAL.rate_bps, eta_s_per_byte=0.3e-9, points=())
Averages = dict[str, float]


def drawn(rng: np.random.Generator) -> list[dict[str, Any]]:
    """The rows of ten jobs that come within ten seconds and take about half a minute together."""
    arrivals = np.sort(rng.uniform(0.0, 10.0, JOBS)).round(1)
    rows = []
    for number, arrival in enumerate((arrivals - arrivals[0]).round(1).tolist()):
        step_s = float(rng.uniform(0.1, 0.5))
        rows.append(
            {
                **{"id": f"j{number}", "model": "replayed", "gpus": 4 if rng.random() < 0.8 else 2},
                **{"iterations": int(rng.integers(8, 40)), "arrival_s": arrival},
                **{"forward_s": round(step_s / 3, 3), "backward_s": round(2 * step_s / 3, 3)},
                **{"size_bytes": int(rng.integers(3, 26)) * 1_000_000, "memory_bytes": GPU_BYTES},
            }
        )
    return rows


def averages(jobs: list[Job]) -> Averages:
    """Each policy's average job completion time."""
    return {policy: average(simulated(TRIAL, COST, jobs, policy)) for policy in TRIAL.policies}


def apart(found: Averages, order: list[str]) -> float:
    """By how much each policy of ``order`` is slower than the one before it, where that is least."""
    return min(found[after] / found[before] - 1 for before, after in pairwise(order))


def off(jobs: list[Job], rng: np.random.Generator) -> list[Job]:
    """The jobs with times, bytes and arrivals a little off."""
    return [
        msgspec.structs.replace(
            job,
            arrival_s=job.arrival_s + rng.uniform(0.0, LATE_S),
            forward_s=job.forward_s * rng.normal(1.0, OFF),
            backward_s=job.backward_s * rng.normal(1.0, OFF),
            size_bytes=job.size_bytes * rng.normal(1.0, OFF),
        )
        for job in jobs
    ]


def main() -> None:
    """Draw, keep the best, write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    candidates = []
    for _ in range(asked.sets):
        rows = drawn(rng)
        jobs = [msgspec.convert(row | {"startup_s": STARTUP_S}, Job) for row in rows]
        found = averages(jobs)
        order = sorted(found, key=found.__getitem__)
        candidates.append((apart(found, order), rows, jobs, order))
    candidates.sort(key=lambda each: -each[0])
    worst = []
    for _, rows, jobs, order in candidates[:FINALISTS]:
        again = np.random.default_rng(asked.seed)
        worst.append((min(apart(averages(off(jobs, again)), order) for _ in range(DRAWS)), rows, jobs))
    least, rows, jobs = max(worst, key=lambda each: each[0])
    for policy, seconds in sorted(averages(jobs).items(), key=lambda each: each[1]):
        print(f"{policy:9} {seconds:.2f} s", file=sys.stderr)
    print(f"each {least:.1%} or more behind the one before it, in {DRAWS} simulations", file=sys.stderr)
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    asked.out.write_text(f'{{"format": "hocket.jobs/1", "jobs": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
