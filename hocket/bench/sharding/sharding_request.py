"""The orders to the processes of ``bench shard``, and rank 0's report."""

from __future__ import annotations

import msgspec

from hocket.errors import HocketError
from hocket.network.file import Line

COMPUTE = "compute"
PLAIN = "fsdp2"
TWO_AHEAD = "fsdp2, two ahead"
ASYNCHRONOUS = "fsdp2, two ahead, asynchronous"
HOCKET = "hocket"


class ShardingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Orders to every rank of ``bench shard``; the same on all of them.

    ``steps`` of a block, ``blocks`` of each variant; ``plan``: "auto", a policy, or a plan's file.
    ``timeline``: a file for hocket's measured timeline; "" for none. ``timeout_s``: of everything.
    """

    model: str
    batch_size: int
    steps: int
    blocks: int
    seed: int
    threads: int
    plan: str
    timeline: str
    timeout_s: float

    def __post_init__(self) -> None:
        for value, what, most in (
            (self.batch_size, "examples in a batch", 100_000),
            (self.steps, "steps in a block", 10_000),
            (self.blocks, "blocks", 1000),
            (self.threads, "threads", 1024),
        ):
            if not 1 <= value <= most:
                raise HocketError(f"{value} {what} are not between 1 and {most}")
        if not 1 <= self.timeout_s <= 604_800:
            raise HocketError(f"timeout of {self.timeout_s:g} s is not between 1 s and a week (604800 s)")


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The simulator's answer for a variant: seconds of a step, and the most bytes at once.

    ``full_bytes``: of full parameters; ``held_bytes``: of all that is held beside shards.
    """

    step_s: float
    full_bytes: int
    held_bytes: int


class TimedSharding(msgspec.Struct, frozen=True, kw_only=True):
    """The report of rank 0.

    ``steps_s``: for each variant, what a step took on the slowest rank, one figure a round; ``stolen``: the
    share of processor time that other virtual machines had meanwhile. ``plan``: hocket's, by its policy, of
    so many ``units``; ``explained``: its report. ``full_bytes``: the most bytes of full parameters that rank
    0 held at once, or that were on their way to it; ``held_bytes``: the most that it held beside shards under
    hocket's plan, with buffers of transfers, ``limit_bytes``: what "auto" allows; ``forecasts``: of the step
    and the network as hocket measured them, none where it had a plan without them; ``collectives``: what each
    kind was measured to cost.
    """

    workers: int
    torch: str
    parameter_bytes: int
    plan: str
    units: int
    explained: list[str]
    steps_s: dict[str, list[float]]
    stolen: dict[str, list[float]]
    full_bytes: dict[str, int]
    held_bytes: int
    limit_bytes: float | None
    forecasts: dict[str, Forecast]
    collectives: dict[str, Line]
