"""The orders to the processes of ``bench train``, and rank 0's report."""

from __future__ import annotations

import math

import msgspec

from hocket.errors import HocketError
from hocket.planner.allreduce_baselines import DDP_BUCKETS_MIB

BUCKETS_MB = DDP_BUCKETS_MIB
DEFAULT_BUCKET_MB = 25

COMPUTE = "compute"
BUSY = "compute, network busy"
NETWORK = "all-reduce"
HOCKET = "hocket"
DDP_COMPILED = "ddp 25 MB, compiled"
HOCKET_COMPILED = "hocket, compiled"


def ddp_name(bucket_mb: int) -> str:
    """The name of DDP with buckets of ``bucket_mb`` MiB."""
    return f"ddp {bucket_mb} MB"


class TrainingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Orders to every rank of ``bench train``; the same on all of them.

    ``rhos``: targets of N / C busy, each with a batch size of its own; unused where there is a
    ``batch_size``. ``steps`` of a block, ``blocks`` of each variant. ``plan``: "auto" or a policy.
    ``compile``: compiled variants too; ``clip``: all of them clip by norm. ``timeout_s``: of everything.
    """

    models: tuple[str, ...]
    rhos: tuple[float, ...]
    batch_size: int | None
    steps: int
    blocks: int
    seed: int
    threads: int
    plan: str
    compile: bool
    timeout_s: float
    clip: bool = False

    def __post_init__(self) -> None:
        if not self.models:
            raise HocketError("no model was named; name one, or leave --model out for all")
        if len(set(self.models)) < len(self.models):
            twice = next(name for name in self.models if self.models.count(name) > 1)
            raise HocketError(f"model '{twice}' is named twice; name it once")
        if not self.rhos:
            raise HocketError("no rho was given; give targets of N / C such as 2,1,0.5")
        for rho in self.rhos:
            if not (math.isfinite(rho) and 0.01 <= rho <= 100):
                raise HocketError(f"rho {rho:g} is not between 0.01 and 100; give e.g. 2,1,0.5")
        for value, what, most in (
            (self.batch_size, "examples in a batch", 100_000),
            (self.steps, "steps in a block", 10_000),
            (self.blocks, "blocks", 1000),
            (self.threads, "threads", 1024),
        ):
            if value is not None and not 1 <= value <= most:
                raise HocketError(f"{value} {what} are not between 1 and {most}")
        if not 1 <= self.timeout_s <= 604_800:
            raise HocketError(f"timeout of {self.timeout_s:g} s is not between 1 s and a week (604800 s)")


class TimedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one batch size.

    ``gradient_bytes``: what one all-reduce of all gradients moves. ``steps_s``: for each variant, what a
    step took on the slowest rank, one figure a round; ``stolen``: the share of processor time that other
    virtual machines had meanwhile; ``cpu_s``: the processor time of the training thread that used most, a
    step; ``lockstep_s``: of each round, what a step would have taken beside a
    busy network if each had waited for the slowest rank's; ``plan``: hocket's, by its policy. ``cycle_s``,
    ``simulated_s``: see :mod:`hocket.bench.training.measured_bound`.
    """

    model: str
    batch_size: int
    rho_target: float | None
    gradient_bytes: int
    steps_s: dict[str, list[float]]
    stolen: dict[str, list[float]]
    cpu_s: dict[str, list[float]]
    lockstep_s: list[float]
    plan: str
    cycle_s: float
    simulated_s: float


class TimedCells(msgspec.Struct, frozen=True, kw_only=True):
    """The report of rank 0: a cell for each model and batch size, and where they were measured."""

    cells: list[TimedCell]
    workers: int
    hosts: list[str]
    torch: str
