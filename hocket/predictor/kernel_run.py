"""The prediction kernel called: arrays in, the ends of steps out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hocket.graph.csr import Indices
from hocket.network import Topology
from hocket.predictor import algorithm_3_1
from hocket.predictor.lowering import WorkerStep
from hocket.predictor.program import ChunkLog, Links, StepEnds, StepRules, WorkerTimes
from hocket.signals import told_by
from hocket.sim.lowering.lowered import Floats

T = TypeVar("T")
_POLL_S = 0.2

NO_LOG = ChunkLog(np.inf, 0.0, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run beside its step and its links.

    ``window_bits``: the HTTP/2 window, 0 without; ``startup_s``: of each transfer; ``speeds``: a factor for
    each worker's processor; ``start_s``: when each asynchronous one begins its first step; ``shuffled``:
    pulls in an order drawn anew; ``needed``: how many workers' gradients complete a synchronous step, 0 for
    asynchronous training.
    """

    window_bits: float = 0.0
    startup_s: float = 0.0
    speeds: Sequence[float] | None = None
    start_s: Sequence[float] | None = None
    shuffled: bool = False
    needed: int = 0
    seed: int = 0


def run_steps(
    step: WorkerStep,
    topology: Topology,
    num_ends: int,
    settings: RunSettings,
    *,
    log: ChunkLog = NO_LOG,
    watch: Indices | None = None,
) -> tuple[Floats, Indices]:
    """Ends of steps, in seconds and ascending, and the worker that each is of, (num_ends,) both.

    A synchronous step is worker -1's. log: filled with the chunks that it asks for; watch (1,): how many ends
    are known so far.
    """
    num_workers, speeds, start_s = len(topology.worker_bps), settings.speeds, settings.start_s
    slowness = np.ones(num_workers) if speeds is None else 1.0 / np.asarray(speeds, np.float64)
    starts = np.zeros(num_workers) if start_s is None else np.asarray(start_s, np.float64)
    links = Links(
        topology.all_alike,
        topology.worker_bps[0],
        topology.server_bps[0],
        topology.routes(),
        topology.capacity_bps(),
        settings.window_bits,
        settings.startup_s,
    )
    watch = np.zeros(1, np.int64) if watch is None else watch
    ends = StepEnds(np.empty(num_ends), np.empty(num_ends, np.int64), watch)
    algorithm_3_1.run_algorithm_3_1(
        step.program,
        WorkerTimes(step.durations_s, step.global_durations_s, slowness, starts),
        links,
        StepRules(settings.shuffled, settings.needed, settings.seed),
        log,
        ends,
    )
    return ends.end_s, ends.worker


def stoppable(call: Callable[[], T]) -> T:
    """Call on a thread of its own, so that a signal's handler, here, is not kept waiting."""
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ended_by, end, call)
        try:
            # A wait without an end would hold signals back.
            while not future.done():
                wait([future], timeout=_POLL_S)
        except BaseException:
            end.set()
            raise
    return future.result()


def ended_by(end: threading.Event, call: Callable[[], T]) -> T:
    """Call where ``end`` ends it."""
    with told_by(end):
        return call()
