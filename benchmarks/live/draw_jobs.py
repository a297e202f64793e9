"""A job set whose policies a live run can tell apart: the best of many that are drawn.

    python benchmarks/live/draw_jobs.py OUT.json [--jobs trained] [--sets 40000] [--seed 0]

Live runs are within some percent of the simulator's, so they can confirm a ranking only where policies differ
by more. Of the sets that are drawn, that one is kept whose policies differ most, each from the next one, in
the worst of many simulations with times, bytes and arrivals that are a few percent off. Nothing of this has
seen a live run. Average job completion times of the set that is kept go to stderr.

Of jobs that train nothing but what a step computes on one core is taken for known here, from a run of the
program by itself. They come as far apart as starting one takes, which keeps both cores busy.
Sets of theirs are alike, for fewer of them share a node; so the best one is changed, a job at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from against_simulator import TRIALS, Trial, average, simulated
from contention import Cost
from train import gradient_bytes

from hocket.cluster.jobs import Job

JOBS, GPU_BYTES = 10, 6e9
TRAIN, REPLAY = 6, 3  # of a set's jobs that are trained
FINALISTS, DRAWS = 100, 40
OFF = 0.03  # how much computing and bytes are off
# What a step of a program computes on one core of such a machine, in seconds.
PROGRAMS: dict[tuple[str, int, int], float] = {
    ("mlp", 256, 512): 0.033,
    ("mlp", 384, 512): 0.043,
    ("mlp", 512, 256): 0.042,
    ("cnn", 32, 32): 0.059,
    ("cnn", 48, 16): 0.053,
    ("gpt", 128, 8): 0.053,
    ("gpt", 160, 8): 0.071,
    ("gpt", 192, 8): 0.094,
}
LARGER = (1, 2, 4)  # how often such a batch
LENGTHS = (10, 40)  # iterations of a trained set's jobs
BETWEEN_S = (7.0, 10.0)  # how long after the last one each of them comes
LONGEST_S = 170.0  # of a trained set, with every policy
Averages = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How sets of a trial are drawn. ``late_s``: how late a job may come, or be ready to compute."""

    trial: Trial
    cost: Cost
    draw: Callable[[np.random.Generator], list[dict[str, Any]]]
    startup_s: dict[bool, float]  # of one that trains, and of one that does not
    late_s: float
    longest_s: float = math.inf
    changes: int = 0  # tried on the best set

    def job(self, row: dict[str, Any]) -> Job:
        """The row as a job whose times are known."""
        if program := row.get("train"):
            batch = next(known for *same, known in PROGRAMS if same == program[:2])
            step_s = PROGRAMS[*program[:2], batch] * program[2] / batch
            row = row | {"model": program[0], "size_bytes": gradient_bytes(*program[:2])}
            row = row | {"forward_s": step_s / 3, "backward_s": 2 * step_s / 3}
        return msgspec.convert(row | {"startup_s": self.startup_s["train" in row]}, Job)


def replayed(rng: np.random.Generator) -> list[dict[str, Any]]:
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


def room(rng: np.random.Generator) -> float:
    """Of a GPU's 16 GB, what two to four jobs share it with."""
    return float(rng.integers(4, 9)) * 1e9


def trained(rng: np.random.Generator) -> list[dict[str, Any]]:
    """The rows of six jobs that train and three that are replayed, on two nodes each."""
    programs = [list(PROGRAMS)[index] for index in rng.permutation(len(PROGRAMS))[:TRAIN].tolist()]
    arrivals = np.cumsum(rng.uniform(*BETWEEN_S, TRAIN + REPLAY)).round(1)
    replays = set(rng.permutation(TRAIN + REPLAY)[:REPLAY].tolist())
    rows = []
    for number, arrival in enumerate((arrivals - arrivals[0]).round(1).tolist()):
        row = {"gpus": 2, "iterations": int(rng.integers(*LENGTHS)), "arrival_s": arrival}
        row |= {"memory_bytes": room(rng)}
        if number in replays:
            step_s, size = float(rng.uniform(0.1, 0.8)), int(rng.integers(2, 8)) * 1_000_000
            row |= {"model": "replayed", "forward_s": round(step_s / 3, 3)}
            row |= {"backward_s": round(2 * step_s / 3, 3), "size_bytes": size}
            rows.append({"id": f"replayed-{number}"} | row)
        else:
            name, width, batch = programs.pop()
            program = [name, width, batch * LARGER[rng.integers(len(LARGER))]]
            rows.append({"id": f"{name}-{width}", "train": program} | row)
    return rows


# Costs as measured on labs of these rates: 4 to 5% over the link's own, sharing as good as fair.
KINDS = {
    "replayed": Kind(
        trial=TRIALS["replayed"],
        cost=Cost(
            a_s=0.2e-3, b_s_per_byte=1.05 * 8 / TRIALS["replayed"].rate_bps, eta_s_per_byte=0.3e-9, points=()
        ),
        draw=replayed,
        startup_s={False: 0.45},
        late_s=0.1,
    ),
    "trained": Kind(
        trial=TRIALS["trained"],
        cost=Cost(a_s=0.0, b_s_per_byte=1.04 * 8 / TRIALS["trained"].rate_bps, eta_s_per_byte=0.0, points=()),
        draw=trained,
        startup_s={False: 0.45, True: 6.5},
        late_s=1.0,
        longest_s=LONGEST_S,
        changes=400,
    ),
}


def averages(kind: Kind, jobs: list[Job]) -> Averages:
    """Each policy's average job completion time."""
    runs = {policy: simulated(kind.trial, kind.cost, jobs, policy) for policy in kind.trial.policies}
    if max(float(run.finish_s.max()) for run in runs.values()) > kind.longest_s:
        return dict.fromkeys(runs, math.inf)
    return {policy: average(run) for policy, run in runs.items()}


def apart(found: Averages, order: list[str]) -> float:
    """By how much each policy of ``order`` is slower than the one before it, where that is least."""
    if math.inf in found.values():
        return -math.inf
    return min(found[after] / found[before] - 1 for before, after in pairwise(order))


def off(kind: Kind, jobs: list[Job], rng: np.random.Generator) -> list[Job]:
    """The jobs with times, bytes and arrivals a little off."""
    return [
        msgspec.structs.replace(
            job,
            arrival_s=job.arrival_s + rng.uniform(0.0, kind.late_s),
            forward_s=job.forward_s * rng.normal(1.0, OFF),
            backward_s=job.backward_s * rng.normal(1.0, OFF),
            size_bytes=job.size_bytes * rng.normal(1.0, OFF),
        )
        for job in jobs
    ]


def worst(kind: Kind, rows: list[dict[str, Any]], seed: int, floor: float) -> float:
    """How far policies are apart, at least, with everything a little off; ``floor`` or less ends it early."""
    jobs, rng = [kind.job(row) for row in rows], np.random.default_rng(seed)
    found, least = averages(kind, jobs), math.inf
    order = sorted(found, key=found.__getitem__)
    for _ in range(DRAWS):
        least = min(least, apart(averages(kind, off(kind, jobs, rng)), order))
        if least <= floor:
            break
    return least


def changed(rows: list[dict[str, Any]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """The rows with one job that is longer or shorter, takes other room, or comes at another time."""
    place, what = int(rng.integers(1, len(rows))), int(rng.integers(3))
    if what == 2:
        later_s = float(rng.uniform(*BETWEEN_S)) - (rows[place]["arrival_s"] - rows[place - 1]["arrival_s"])
        later = [row | {"arrival_s": round(row["arrival_s"] + later_s, 1)} for row in rows[place:]]
        return rows[:place] + later
    new = {"iterations": int(rng.integers(*LENGTHS))} if what == 1 else {"memory_bytes": room(rng)}
    return [*rows[:place], rows[place] | new, *rows[place + 1 :]]


def main() -> None:
    """Draw, keep the best, change it, write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", choices=sorted(KINDS), default="replayed")
    parser.add_argument("--sets", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    kind, rng = KINDS[asked.jobs], np.random.default_rng(asked.seed)
    candidates = []
    for _ in range(asked.sets):
        rows = kind.draw(rng)
        found = averages(kind, [kind.job(row) for row in rows])
        candidates.append((apart(found, sorted(found, key=found.__getitem__)), rows))
    candidates.sort(key=lambda each: -each[0])
    tried = (rows for _, rows in candidates[:FINALISTS])
    best, least = candidates[0][1], -math.inf
    for number in range(FINALISTS + kind.changes):
        rows = next(tried, None) or changed(best, rng)
        if (found_least := worst(kind, rows, asked.seed, least)) > least:
            best, least = rows, found_least
            print(f"{number}: {least:.1%}", file=sys.stderr)
    jobs = [kind.job(row) for row in best]
    for policy, seconds in sorted(averages(kind, jobs).items(), key=lambda each: each[1]):
        print(f"{policy:9} {seconds:.2f} s", file=sys.stderr)
    print(f"each {least:.1%} or more behind the one before it, in {DRAWS} simulations", file=sys.stderr)
    lines = ",\n".join(f"    {json.dumps(row)}" for row in best)
    asked.out.write_text(f'{{"format": "hocket.jobs/1", "jobs": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
