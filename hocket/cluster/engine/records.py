"""The records that the engine's state is made of, and the rules it follows.

Times are whole ticks. Sums of whole numbers do not depend on their order, so what coincides on paper
coincides here, whether iterations are passed one by one or many at once; and loads and ranks that are equal
on paper are ties. A tick is a picosecond, or the least power of ten of it with which nothing can overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Records = npt.NDArray[Any]

NONE = -1
NEVER = np.iinfo(np.int64).max
CLOSED = 2**60  # bytes that no GPU has: taken from one that is to get no job
EXCLUDED = 2**61  # more than that, too: of a GPU that is not to be used by anybody
NUM_TASKS = 2  # of a job's iteration
# Stages of a job; one that is placed and neither ready to transfer nor transferring computes, or waits to.
SUBMITTED, QUEUED, COMPUTING, READY, TRANSFERRING, FINISHED = range(6)
# Phases of a worker, a job's part on one of its GPUs: 2k while it waits for the GPU to compute segment k,
# 2k + 1 while it computes that, HELD - k while it may not, because batches have yet to arrive. Named: those
# of a job without batches: its segments are its forward and its backward task.
FORWARD, IN_FORWARD, BACKWARD, IN_BACKWARD = range(4)
WAITING = -1  # it has computed what there is of the iteration
HELD = -2

JOB = np.dtype(
    [
        # Fields that others look at to see if it goes first, together in one line of the cache.
        ("key", np.int64),  # the least goes first
        ("rank", np.int64),  # breaks ties: by arrival, then id
        ("stage", np.int64),
        ("claims", np.int64),  # whether the links are its own from the next chunk on
        ("blocker", np.int64),  # who goes before it and claims one of its servers, or NONE
        ("listed", np.int64),  # whether it is a candidate already
        ("next_waiting", np.int64),  # the next job whose transfer waits for what its own does, or NONE
        ("first_port", np.int64),
        ("num_servers", np.int64),  # that its transfers touch; 0 inside one server
        ("waits_at", np.int64),  # the link that keeps its transfer out, or NONE
        ("previous_waiting", np.int64),
        # Bytes that will be left when its transfer can be preempted, and at which instant that was looked up:
        # NEVER of a transfer that waits, where it stays so.
        ("after_chunk", np.float64),
        ("ranked_at", np.int64),
        # Its iterations; times in ticks.
        ("first_worker", np.int64),
        ("gpus", np.int64),
        ("forward", np.int64),
        ("backward", np.int64),
        (
            "remaining",
            np.int64,
        ),  # iterations that are not complete: computed, and all that they send has arrived
        ("per_iteration", np.int64),  # service of one, on one GPU; with the transfer once that is known to be
        ("workers_pending", np.int64),  # those that have yet to compute all of the iteration under way
        ("iteration_start", np.int64),  # of the one under way
        ("since", np.int64),  # when its stage changed, or ``stalled`` did
        ("stalled", np.int64),  # whether nothing of it goes on but transfers
        ("stalls", np.int64),  # for how long that has been so since ``iteration_start``
        # Its transfer, as of ``moving_since``.
        ("chunk_left", np.float64),  # bytes left of the chunk under way
        ("later", np.float64),  # bytes left in later chunks
        ("startup_left", np.int64),  # of the chunk under way
        ("moving_since", np.int64),
        ("stopped_at", np.int64),  # when it was preempted last, or NONE
        ("per_byte", np.float64),  # ticks
        ("flow", np.int64),  # its place in ``flows`` while it transfers
        ("moved", np.int64),  # whether it is listed in ``moved_jobs``
        ("num_hops", np.int64),  # the links that its transfers touch: servers' and uplinks
        ("alone_per_byte", np.float64),  # with all its links for itself
        # Its segments, and its batches if its transfers overlap its computing.
        ("first_segment", np.int64),  # of those in use
        ("num_segments", np.int64),
        ("overlaps", np.int64),  # whether its batches are in use: it has some, and is on several servers
        ("first_batch", np.int64),
        ("num_batches", np.int64),
        ("overlapped_segments", np.int64),  # they follow its forward and its backward task
        # Batches whose gradients are, from the first of the iteration before this one.
        ("batches_complete", np.int64),
        ("batches_arrived", np.int64),  # of these
        ("workers_held", np.int64),  # those that may not compute before more have arrived
        # Figures.
        ("size", np.float64),  # bytes of its transfer; with batches, of the last one that was ready
        ("bytes_sent", np.float64),
        ("transferring", np.int64),  # of the time that it was stalled
        ("network_wait", np.int64),  # of that, too
        ("gpu_wait", np.int64),
        ("iterations", np.int64),
        ("kept", np.int64),  # those that were complete when it was placed
        (
            "reduce",
            np.int64,
        ),  # what its transfers alone add to computing, as keys count it: a + b * size, or less
        ("memory_class", np.int64),
        ("draw", np.int64),  # what RAND draws its GPUs by: its place among all jobs
        ("arrival", np.int64),
        ("start", np.int64),
        ("finish", np.int64),
        ("reserved", np.int64),  # when it fits at the latest by what it holds, or NEVER
        ("launch", np.int64),  # from ``start`` to its first iteration; 0 once that has begun
        ("types", np.int64),  # those of GPUs that it may run on, a bit each
        ("type", np.int64),  # the one that its times are for: before it is placed the one that suits it best
        ("user", np.int64),  # whose it is
        ("priority", np.int64),  # the highest is placed first
        # Its number of GPUs is ``gpus`` while it is placed, and the fewest while it queues.
        ("fewest", np.int64),
        ("most", np.int64),  # that it has, and that there are of a type
        ("work", np.int64),  # all of it, in iterations of one GPU
        ("work_kept", np.int64),  # that was done when it queued last
        ("checkpoint", np.int64),  # ticks to save it when it is preempted, or NONE: it never is
        ("relaunch", np.int64),  # ticks from its next start to its first iteration then
        ("preemptions", np.int64),
        ("shrunk", np.int64),  # times that it went on with fewer GPUs
        ("grown", np.int64),  # times that it went on with more
        ("saved_at", np.int64),  # when it was, or will be, the last time
        ("launched", np.int64),  # ticks that it took to launch on the GPUs that it has
    ],
    align=True,
)
# A job's computing on one type of GPU: fields of ``JOB`` that depend on it.
PACE = np.dtype(
    [
        ("forward", np.int64),
        ("backward", np.int64),
        ("reduce", np.int64),
        ("first_segment", np.int64),
        ("overlapped_segments", np.int64),
    ],
    align=True,
)
SEGMENT = np.dtype(
    [
        ("ticks", np.int64),
        ("backward", np.int64),  # whether it belongs to the backward task
        ("needs", np.int64),  # batches of the iteration before that must have arrived
        ("gives", np.int64),  # batches of this iteration that are complete when all workers have passed it
        ("workers_passed", np.int64),  # those that have computed it
    ],
    align=True,
)
# A job's workers follow one another, as do its ports: its place in the list of each link's users.
WORKER = np.dtype([("job", np.int64), ("gpu", np.int64), ("next", np.int64), ("phase", np.int64)], align=True)
PORT = np.dtype(
    [
        ("job", np.int64),
        ("link", np.int64),
        ("next", np.int64),
        ("next_flow", np.int64),  # the port of another transfer under way there, while its own is
    ],
    align=True,
)
GPU = np.dtype(
    [
        ("resident", np.int64),  # the first worker placed here, WORKER.next the others
        ("running", np.int64),  # a worker that computes, or is between two segments of a task; or NONE
        ("free", np.int64),  # bytes; CLOSED less where no job may come
        ("jobs", np.int64),  # placed here
        ("touched", np.int64),  # whether it is listed in ``touched_gpus``
        ("type", np.int64),
        ("vacated", np.int64),  # when the last job that was preempted here has saved, or will have
    ],
    align=True,
)
LINK = np.dtype(
    [
        ("user", np.int64),  # the first port of those whose jobs transfer over it
        ("count", np.int64),  # transfers under way
        ("flow", np.int64),  # the first port of those whose transfers are under way
        ("waiting", np.int64),  # the first job whose transfer it keeps out
        ("changed", np.int64),  # whether it is listed in ``changed_links``
        ("freed", np.int64),  # whether a transfer over it ended at this instant
        ("claimant", np.int64),  # the job that claims it, or NONE
    ],
    align=True,
)
USER = np.dtype(
    [
        ("quota", np.int64),  # GPUs that its jobs may hold, or NEVER
        ("share", np.int64),  # its weight where users share fairly
        ("held", np.int64),  # GPUs of its jobs that are placed
        ("since", np.int64),  # when that changed
        ("attained", np.float64),  # GPUs that it held, times ticks, until then, as far as that counts
        ("kept_for", np.int64),  # the only job of its own that may be placed, or NONE
    ],
    align=True,
)
COUNTS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "queued",
            "touched",
            "ready",
            "changed",
            "flows",
            "over",
            "finished",
            "placed",
            "preempted",
            "started",
            "moved",
        )
    ],
    align=True,
)


class Rules(NamedTuple):
    """Numbers that decisions follow, and the cost of transfers."""

    order: int
    admission: int
    limit: int
    preemptive: bool
    exclusive: bool  # whether no server ever carries two transfers, so that all have one rate
    steady: bool  # whether a job that computes stays ahead of those that wait
    by_user: bool  # whether jobs queue by what their users have had
    half_life: float  # ticks after which that counts half, infinite where all counts
    passes_over: bool  # whether jobs are placed before one ahead of them that does not fit
    requeues: bool  # whether jobs are preempted for one ahead of them that does not fit
    resizes: bool  # whether jobs with a range of GPUs have fewer or more while they run
    starvation: int  # ticks after its arrival from which a job that queues holds GPUs, or NEVER
    jobs_per_gpu: int
    wait_for_faster: bool  # whether jobs wait for a type of GPU on which they are over sooner
    placement: int
    kappa: int
    seed: int
    startup: int  # ticks
    per_byte: float  # ticks, b
    eta: float
    chunk: float  # bytes, infinite where transfers are not preempted
    max_min: bool
    gpus_per_server: int
    num_servers: int


class Sites(NamedTuple):
    """Places for jobs; the last eight fields are room to work in."""

    class_memory: Ints  # (classes,) bytes, ascending: the different needs of jobs
    class_fits: Ints  # (types, classes) GPUs of a type with that much free
    pace: Records  # (J, types) PACE
    rack: Ints  # (servers,)
    capacity: Floats  # (links,) bytes a tick
    batch_ticks: Floats  # what each job's batches take alone, in their order
    route: Ints  # (J, hops) links of each job, padded with NONE; without rows unless max_min
    gpu_load: Ints  # (G,)
    server_load: Ints  # (servers,)
    chosen: Ints  # (G,) GPUs
    option: Ints  # (G,) GPUs
    held: Ints  # (G,) GPUs
    holder: Ints  # (G,) the job that holds each of these
    opened: Ints  # (G,) which of these are open for one job
    promised: Ints  # (G,) ticks from now on that those ahead in the queue are to have a GPU
