"""The rows of ``bench predict``, the orders to its processes, and rank 0's report."""

from __future__ import annotations

from itertools import product
from typing import Literal

import msgspec

from hocket.bench.replay.replay_request import ReplayRequest, check_list
from hocket.errors import HocketError, UnknownNameError
from hocket.launch.job import LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES
from hocket.planner import POLICIES, Architecture

Mode = Literal["async", "sync"]
MODES: tuple[Mode, ...] = ("async", "sync")
Transport = Literal["gloo", "grpc"]
TRANSPORTS: tuple[Transport, ...] = ("gloo", "grpc")
STEPS = ("chain", "vgg11", "inception_v1", "resnet50_v1", "inception_v3")
ORDERS = ("fifo", "random", "tic", "tac", "reverse")


class AccuracyRequest(ReplayRequest, frozen=True, kw_only=True):
    """A request of ``bench predict``: every combination is replayed and predicted.

    ``policies``: those for all-reduce are replayed without servers, with two workers or more, synchronously.
    Durations are scaled so that all transfers of a step take ``rho`` times as long as its operations.
    ``rounds``: how often asynchronous rows are replayed, workers beginning at other moments in each.
    ``transports``: what servers and workers talk by; all-reduces are gloo's. ``window_bytes``: HTTP/2's,
    which gRPC is given and predicted by, 0 for the largest; None: the predictor's own.
    """

    steps: tuple[str, ...] = STEPS
    policies: tuple[str, ...] = ORDERS
    modes: tuple[Mode, ...] = MODES
    workers: tuple[int, ...] = (1, 2, 4, 8)
    servers: tuple[int, ...] = (1, 2)
    transfer_s: float = 0.25
    rho: float = 1.0
    num_steps: int = 14
    skip: int = 3
    rounds: int = 4
    transports: tuple[Transport, ...] = ("gloo",)
    window_bytes: float | None = None

    def __post_init__(self) -> None:
        for policy in self.policies:
            if policy not in POLICIES:
                raise UnknownNameError("policy", policy, list(POLICIES))
            if POLICIES[policy].architecture == "allreduce" and POLICIES[policy].drawn_anew:
                raise HocketError(f"policy '{policy}' draws orders of operations, which are not replayed")
        check_list("mode", self.modes)
        check_list("transport", self.transports)
        window = self.window_bytes
        if window and not LEAST_WINDOW_BYTES <= window <= MOST_WINDOW_BYTES:
            raise HocketError(
                f"window {window:g} B is not between {LEAST_WINDOW_BYTES} and {MOST_WINDOW_BYTES},"
                " as HTTP/2's are; give e.g. 28MB, or off"
            )
        if self.rounds < 1:
            raise HocketError(f"{self.rounds} rounds measure nothing; ask for 1 or more")
        self._check([self.rho], max(self.workers), max(self.servers))


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

    ``seed`` decides which measured step is repeated when, and orders that are drawn. ``begins_s``, a list a
    round: when each worker begins, after the moment at which all are ready.
    """

    configuration: Configuration
    graph: str
    plan: str
    drawn_anew: bool
    seed: int
    begins_s: list[list[float]]


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """Orders to all ranks of a replay; the first ``most_servers`` ranks are servers, the others workers.

    ``window_bytes``: HTTP/2's, where gRPC is the transport.
    """

    rows: list[Replayed]
    most_servers: int
    num_steps: int
    wait_s: float
    window_bytes: int


class ReplayedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of each worker's steps, by round, on one clock; of pulls the fraction that was overtaken.

    ``stolen``: the share of processor time that other virtual machines had meanwhile.
    """

    ends_s: list[list[list[float]]]
    out_of_order: float
    stolen: float


class ReplayedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Every row, in the order of the orders."""

    rows: list[ReplayedRow]


def configurations(request: AccuracyRequest) -> list[Configuration]:
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
