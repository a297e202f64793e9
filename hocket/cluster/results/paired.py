"""Placements and policies over the same job sets: their figures, and how much they differ, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np

from hocket.cluster.results.run_statistics import Figures, Floats, OutageSetting, SimulatedCluster
from hocket.confidence import interval_95


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over job sets and its 95% confidence interval, which a single job set does not have."""

    mean: float
    low: float | None = None
    high: float | None = None


class SweepRun(Figures, frozen=True, kw_only=True):
    """One run: the figures of a placement and policy on one job set.

    ``went_down``, ``interruptions``, ``lost_gpu_hours``: with outages, of servers, of jobs, for nothing.
    """

    job_set: str
    seed: int
    events: int
    wall_s: float
    went_down: int | None = None
    interruptions: int | None = None
    lost_gpu_hours: float | None = None


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One placement and policy over all job sets."""

    placement: str
    policy: str
    average_jct_s: Estimate
    median_jct_s: Estimate
    p95_jct_s: Estimate
    gpu_utilization: Estimate
    makespan_s: Estimate
    interruptions: Estimate | None = None
    lost_gpu_hours: Estimate | None = None
    runs: tuple[SweepRun, ...]


class PairedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one placement and policy beyond another's on the same job sets; below 0: it is faster.

    ``difference_s`` is of the average completion times; ``relative`` and ``p95_relative`` are of the average
    and of the 95th percentile, each job set's difference over the other's value. ``faster`` counts the job
    sets on which its average is lower; ``p_value`` is that of a paired t-test (None: all differences agree).
    """

    placement: str
    policy: str
    than_placement: str
    than_policy: str
    difference_s: Estimate
    relative: Estimate
    p95_relative: Estimate
    faster: int
    p_value: float | None


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """All rows in the order asked for, and each pair of them, the later one against the earlier.

    ``overlapping``: jobs of all job sets whose transfers overlap their computing. ``bound_jct_s``: no policy
    and no placement has lower averages. ``outages``: as asked for, drawn by each run's seed.
    """

    servers: int
    gpus_per_server: int
    setting: SimulatedCluster
    overlapping: int
    bound_jct_s: Estimate

    job_sets: int
    rows: tuple[SweepRow, ...]
    pairs: tuple[PairedRow, ...]
    wall_s: float
    outages: OutageSetting | None = None


def sweep_row(placement: str, policy: str, runs: Sequence[SweepRun]) -> SweepRow:
    """The means of ``runs``, one a job set."""
    figures = ["average_jct_s", "median_jct_s", "p95_jct_s", "gpu_utilization", "makespan_s"]
    if runs[0].interruptions is not None:
        figures += ["interruptions", "lost_gpu_hours"]
    estimates = {key: estimate(_of(runs, key)) for key in figures}
    return SweepRow(placement=placement, policy=policy, **estimates, runs=tuple(runs))


def paired_rows(rows: Sequence[SweepRow]) -> tuple[PairedRow, ...]:
    """Each of ``rows`` against each one before it."""
    return tuple(_pair_row(row, than) for than, row in combinations(rows, 2))


def _pair_row(row: SweepRow, than: SweepRow) -> PairedRow:
    ours, theirs = _of(row.runs, "average_jct_s"), _of(than.runs, "average_jct_s")
    our_p95, their_p95 = _of(row.runs, "p95_jct_s"), _of(than.runs, "p95_jct_s")
    return PairedRow(
        placement=row.placement,
        policy=row.policy,
        than_placement=than.placement,
        than_policy=than.policy,
        difference_s=estimate(ours - theirs),
        relative=estimate(ours / theirs - 1),
        p95_relative=estimate(our_p95 / their_p95 - 1),
        faster=int((ours < theirs).sum()),
        p_value=_p_value(ours, theirs),
    )


def _of(runs: Sequence[SweepRun], key: str) -> Floats:
    return np.array([getattr(run, key) for run in runs], dtype=np.float64)


def estimate(values: Floats) -> Estimate:
    """The mean of ``values``, one of each job set, and its interval."""
    low, high = interval_95(values)
    return Estimate(mean=float(values.mean()), low=low, high=high)


def _p_value(ours: Floats, theirs: Floats) -> float | None:
    if len(ours) < 2 or np.ptp(ours - theirs) == 0:
        return None
    from scipy.stats import ttest_rel

    return float(ttest_rel(ours, theirs).pvalue)
