"""The input of the prediction kernel: a worker's step, the shared links, and what to log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class WorkerProgram(NamedTuple):
    """One worker's step: L nodes, the first T of which take time on processors; the others are transfers.

    The G global nodes exist once a step, in synchronous training only.
    """

    num_servers: int  # M
    num_timed: int  # T
    apart: bool  # whether each server begins a worker's next step by itself, its pulls and what follows
    next_ptr: Ints  # (L + 1,) cuts next_idx: the nodes of the same worker that wait for each node
    next_idx: Ints
    waits: Ints  # (L,) how many nodes each one waits for
    lane: Ints  # (L,)
    server: Ints  # (L,) whose part of the step each is; -1: the worker's own
    rank: Ints  # (L,) which ready node a lane takes first, the least
    bits: Floats  # (L - T,)
    batch: Ints  # (L - T,) of a pull: which batch it is a part of; -1 for a push
    num_batches: int
    initial: Ints  # nodes that wait for nothing
    awaited: npt.NDArray[np.bool_]  # (L,) whether the synchronous step waits for this node of enough workers
    in_turn: npt.NDArray[np.bool_]  # (L,) what a server does for one worker after another
    to_ptr: Ints  # (L + 1,) cuts to_idx: the global nodes that wait for each local one
    to_idx: Ints
    global_ptr: Ints  # (G + 1,) cuts global_idx: the global nodes that wait for each global one
    global_idx: Ints
    global_waits: Ints  # (G,)
    global_server: Ints  # (G,)


class WorkerTimes(NamedTuple):
    """Seconds of timed and of global nodes, how slow workers are, and when each begins."""

    local_s: Floats  # (samples, T)
    global_s: Floats  # (samples, G)
    slowness: Floats  # (W,) factors on a worker's own processor
    start_s: Floats  # (W,) when each begins its first step, 0 for all if synchronous


class Links(NamedTuple):
    """Shared links: ``alike`` with two bandwidths, or routes over links as Topology gives them."""

    alike: bool
    worker_bps: float
    server_bps: float
    route: Ints  # (2 W M, 4)
    capacity_bps: Floats
    window_bits: float  # the HTTP/2 window: streams queue first come, first served; 0: whole, by their rank
    startup_s: float  # of each transfer


class StepRules(NamedTuple):
    """Rules by which steps are drawn and end."""

    shuffled: bool  # whether each worker pulls in an order drawn anew in each step
    needed: int  # workers whose gradients complete a synchronous step; 0: asynchronous
    seed: int


class StepEnds(NamedTuple):
    """Ends of steps; arrays filled in place."""

    end_s: Floats  # (steps,) of asynchronous workers' steps, or of synchronous ones
    worker: Ints  # (steps,) the worker that completed each, -1 for all
    watch: Ints  # (1,) how many steps are complete, for another thread to read


class ChunkLog(NamedTuple):
    """Chunks that ended between two moments, and when they ran; arrays filled in place."""

    from_s: float
    to_s: float
    worker: Ints  # -1: a server's
    node: Ints
    start_s: Floats
    end_s: Floats
