"""What ``bench predict`` replays, what its processes are asked, and what rank 0 answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal

import msgspec

from hocket.errors import HocketError, UnknownNameError
from hocket.planner import POLICIES, Architecture

Mode = Literal["async", "sync"]
MODES: tuple[Mode, ...] = ("async", "sync")
Transport = Literal["gloo", "grpc"]
TRANSPORTS: tuple[Transport, ...] = ("gloo", "grpc")
STEPS = ("chain", "vgg11", "inception_v1", "resnet50_v1", "inception_v3")
ORDERS = ("fifo", "random", "tic", "tac", "reverse")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to replay and to predict: every combination.

    ``steps``: names as :func:`hocket.bench.graphs.load_target` takes them. ``policies``: those for all-reduce
    are replayed without servers, with two workers or more, synchronously. ``rate_bps``: of the lab's links.
    Sizes are scaled so that pulling every parameter alone takes ``transfer_s`` at that rate, and durations so
    that all transfers of a step take ``rho`` times as long as its operations. Each worker replays
    ``num_steps``, of which ``skip`` do not count. ``transports``: what servers and workers talk by;
    all-reduces are gloo's. ``window_bytes``: HTTP/2's, by which gRPC is predicted; None: the predictor's own.
    """

    steps: tuple[str, ...] = STEPS
    policies: tuple[str, ...] = ORDERS
    modes: tuple[Mode, ...] = MODES
    workers: tuple[int, ...] = (1, 2, 4, 8)
    servers: tuple[int, ...] = (1, 2)
    rate_bps: float = 1e9
    transfer_s: float = 0.25
    rho: float = 1.0
    num_steps: int = 14
    skip: int = 3
    seed: int = 0
    timeout_s: float = 28_800.0
    transports: tuple[Transport, ...] = ("gloo",)
    window_bytes: float | None = None

    def __post_init__(self) -> None:
        for policy in self.policies:
            if policy not in POLICIES:
                raise UnknownNameError("policy", policy, list(POLICIES))
            if POLICIES[policy].architecture == "allreduce" and POLICIES[policy].drawn_anew:
                raise HocketError(f"policy '{policy}' draws orders of operations, which are not replayed")
        for what, values in (
            ("step", self.steps),
            ("policy", self.policies),
            ("mode", self.modes),
            ("transport", self.transports),
        ):
            check_list(what, values)
        for name, value, least, most in (
            ("transfer", self.transfer_s, 1e-3, 100.0),
            ("rho", self.rho, 0.01, 100.0),
            ("timeout", self.timeout_s, 1.0, 604_800.0),
        ):
            if not (math.isfinite(value) and least <= value <= most):
                raise HocketError(f"{name} {value:g} is not between {least:g} and {most:g}")
        if not 4 <= self.num_steps <= 100_000:
            raise HocketError(f"{self.num_steps} steps are not between 4 and 100000")
        if not 1 <= self.skip <= self.num_steps - 3:
            raise HocketError(
                f"skip {self.skip} of {self.num_steps} steps leaves too few; skip 1 to {self.num_steps - 3}"
            )
        if max(self.workers) + max(self.servers) > 64:
            raise HocketError(
                f"{max(self.workers)} workers and {max(self.servers)} servers on one machine measure its"
                " scheduler; give up to 64 together"
            )


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One row of what is replayed; ``servers`` is 0 for all-reduce, whose transport is gloo."""

    step: str
    policy: str
    architecture: Architecture
    mode: Mode
    workers: int
    servers: int
    transport: Transport = "gloo"


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration as ranks replay it: ``graph`` and ``plan`` name files in the folder of the run.

    ``seed`` decides which measured step is repeated when, and orders that are drawn.
    """

    configuration: Configuration
    graph: str
    plan: str
    drawn_anew: bool
    seed: int


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What every rank replays; the first ``most_servers`` ranks are servers, the others workers."""

    rows: list[Replayed]
    most_servers: int
    num_steps: int
    wait_s: float


class ReplayedRow(msgspec.Struct, frozen=True, kw_only=True):
    """When each worker's steps ended, on one clock for all; of pulls the fraction that was overtaken."""

    ends_s: list[list[float]]
    out_of_order: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Every row, in the order of the orders."""

    rows: list[ReplayedRow]


def configurations(request: Request) -> list[Configuration]:
    """Every combination that ``request`` asks for.

    Raises
    ------
    HocketError
        When nothing is left, because an all-reduce takes two workers and synchronous steps.
    """
    found = []
    for step in request.steps:
        for policy in request.policies:
            reduces = POLICIES[policy].architecture == "allreduce"
            talks: list[tuple[Transport, int]] = (
                [("gloo", 0)] if reduces else list(product(request.transports, request.servers))
            )
            for mode in request.modes:
                if reduces and mode == "async":
                    continue
                for transport, servers in talks:
                    found += [
                        Configuration(
                            step=step,
                            policy=policy,
                            architecture=POLICIES[policy].architecture,
                            mode=mode,
                            workers=workers,
                            servers=servers,
                            transport=transport,
                        )
                        for workers in request.workers
                        if not reduces or workers > 1
                    ]
    if not found:
        raise HocketError("all-reduce takes --mode sync and two workers or more; ask for those")
    return found


def check_list(what: str, values: Sequence[str | float]) -> None:
    """Refuse an empty list, and one that names something twice."""
    if not values:
        raise HocketError(f"no {what} was named; name one, or leave --{what} out")
    for value in values:
        if values.count(value) > 1:
            raise HocketError(f"{what} '{value}' is named twice; name it once")
