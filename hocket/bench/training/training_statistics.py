"""From the times of each round to what they say: medians, ratios within rounds, and the limit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean, median
from typing import Literal

import msgspec
import numpy as np

from hocket.bench.training.training_request import (
    BUCKETS_MB,
    BUSY,
    COMPUTE,
    DDP_COMPILED,
    HOCKET,
    HOCKET_COMPILED,
    NETWORK,
    TimedCell,
    ddp_name,
)

Limit = Literal["compute", "network", "cycle"]


class Quartiles(msgspec.Struct, frozen=True, kw_only=True):
    """The median over rounds, and the lower and upper quartile."""

    median: float
    low: float
    high: float


class TrainingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One variant; ``speedup`` and ``over_bound`` are null for what does not train on all ranks together.

    ``step_s``: seconds a step, ``rounds_s`` one figure a round; ``stolen``: for each round, the share of
    processor time that other virtual machines had; ``cpu_s``: of each, the processor time of the training
    thread that used most, a step, the same in all where nothing slows processors down. ``speedup``: in each
    round, the time of the best DDP bucket over this one's; of what is compiled, that of compiled DDP.
    ``over_bound``: the median step over the bound; null for what is compiled as well, because the bound is of
    an eager step.
    """

    variant: str
    step_s: Quartiles
    speedup: Quartiles | None
    over_bound: float | None
    rounds_s: list[float]
    stolen: list[float]
    cpu_s: list[float]


class TrainingCell(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one batch size; medians, in seconds a step.

    ``compute_s`` (C): alone; ``busy_s``: while the network is busy, on the slowest rank; ``lockstep_s``:
    the same if each step had waited for the rank that was slowest in it, as steps of synchronous training
    do, which is more where now one rank is disturbed and now another; ``network_s`` (N): the all-reduces
    alone. ``rho`` = N / C busy. ``cycle_s``: the simulator's bound for a step of this ``busy_s`` and N,
    which knows what waits for what from one step to the next. ``bound_s``: the largest of the three, and
    ``limit`` which one. Where ``rho`` is less than 1 the network is busy during a part of a step only and
    slows it less than ``busy_s`` has it: ``bound_s`` is then a reference, slightly above the true limit.
    ``plan``: hocket's, by its policy; ``simulated_s``: the step that the simulator expects of it.
    """

    model: str
    batch_size: int
    rho_target: float | None
    rho: float
    gradient_bytes: int
    compute_s: float
    busy_s: float
    lockstep_s: float
    network_s: float
    cycle_s: float
    bound_s: float
    limit: Limit
    plan: str
    simulated_s: float
    best_ddp: str
    rows: list[TrainingRow]

    def row(self, variant: str) -> TrainingRow:
        """The row of ``variant``, which was timed."""
        return next(row for row in self.rows if row.variant == variant)


class TrainingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Hocket over all cells.

    ``mean_speedup`` (geometric) and ``least_speedup`` are of its medians over the best DDP bucket,
    ``most_over_bound`` is the farthest that it is from the bound.
    """

    mean_speedup: float
    least_speedup: float
    most_over_bound: float


def cell_of(measured: TimedCell) -> TrainingCell:
    """The cell of one model at one batch size: medians over its rounds, and the bound that they give."""
    typical_s = {name: median(rounds_s) for name, rounds_s in measured.steps_s.items()}
    best_ddp = min(map(ddp_name, BUCKETS_MB), key=typical_s.__getitem__)
    busy_s, network_s = typical_s[BUSY], typical_s[NETWORK]
    bound_s = max(busy_s, network_s)
    limit: Limit = "compute" if busy_s > network_s else "network"
    # A bound by what a step computes or sends is also the simulator's, but for rounding.
    if measured.cycle_s > (1 + 1e-6) * bound_s:
        bound_s, limit = measured.cycle_s, "cycle"
    return TrainingCell(
        model=measured.model,
        batch_size=measured.batch_size,
        rho_target=measured.rho_target,
        rho=network_s / busy_s,
        gradient_bytes=measured.gradient_bytes,
        compute_s=typical_s[COMPUTE],
        busy_s=busy_s,
        lockstep_s=median(measured.lockstep_s),
        network_s=network_s,
        cycle_s=measured.cycle_s,
        bound_s=bound_s,
        limit=limit,
        plan=measured.plan,
        simulated_s=measured.simulated_s,
        best_ddp=best_ddp,
        rows=[_row(name, measured, best_ddp, bound_s) for name in measured.steps_s],
    )


def _row(name: str, measured: TimedCell, best_ddp: str, bound_s: float) -> TrainingRow:
    compiled = name in (DDP_COMPILED, HOCKET_COMPILED)
    rounds_s, ddps_s = measured.steps_s[name], measured.steps_s[DDP_COMPILED if compiled else best_ddp]
    trains = name not in (COMPUTE, BUSY, NETWORK)
    ratios = [ddp_s / own_s for ddp_s, own_s in zip(ddps_s, rounds_s, strict=True)]
    return TrainingRow(
        variant=name,
        step_s=spread(rounds_s),
        speedup=spread(ratios) if trains else None,
        over_bound=median(rounds_s) / bound_s if trains and not compiled else None,
        rounds_s=rounds_s,
        stolen=measured.stolen[name],
        cpu_s=measured.cpu_s[name],
    )


def spread(values: Sequence[float]) -> Quartiles:
    """Median and quartiles, interpolated between values."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Quartiles(median=middle, low=low, high=high)


def summary_of(cells: Sequence[TrainingCell]) -> TrainingSummary:
    """Hocket over all of ``cells``, of which there is at least one."""
    rows = [cell.row(HOCKET) for cell in cells]
    speedups = [row.speedup.median for row in rows if row.speedup is not None]
    return TrainingSummary(
        mean_speedup=geometric_mean(speedups),
        least_speedup=min(speedups),
        most_over_bound=max(row.over_bound for row in rows if row.over_bound is not None),
    )
