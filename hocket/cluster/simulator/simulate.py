"""Jobs on a shared cluster, simulated: the engine, its virtual clock, and what came of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.records import NONE, Ints, Records, Rules
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state import EngineState, make_state
from hocket.cluster.jobs import JobSet
from hocket.cluster.simulator import clock as clocks
from hocket.cluster.simulator.cluster_timeline import timeline_of
from hocket.cluster.simulator.outage_feed import (
    OutageFeed,
    busy_ticks,
    computing_ticks,
    lost_ticks,
    queueing_ticks,
    toll_of,
)
from hocket.cluster.simulator.outages import Outages, OutageToll
from hocket.cluster.simulator.simulation_log import SimulationLog
from hocket.graph import Timeline

Floats = npt.NDArray[np.float64]

MOST_SPANS = 100_000
# Between two calls of the kernel signals are served.
_INSTANTS_A_CALL = 200_000
_NO_TICK = 2.0**62  # that any run comes to
_LEVELS_A_CALL = 100_000


@dataclass(frozen=True, kw_only=True)
class TimelineWindow:
    """Part of a run: the first tasks and transfers to end of those that begin at or after ``from_s``."""

    from_s: float = 0.0
    most_spans: int = MOST_SPANS


@dataclass(frozen=True, kw_only=True, eq=False)
class PreemptionToll:
    """The toll that preemption and resizing took of a run.

    Attributes
    ----------
    times : (J,) that a job was preempted.
    shrunk, grown : (J,) times that it went on with fewer GPUs, and with more.
    checkpoints_s : (J,) seconds that it saved and restored, and was launched again, for that.
    lost_s, lost_gpu_s : (J,) seconds on its GPUs that came to nothing, of each and of all of them: iterations
        under way when it left them.
    checkpoints_gpu_s : (J,) as ``checkpoints_s``, of all GPUs, as many as it had in the end.
    """

    times: Ints
    shrunk: Ints
    grown: Ints
    checkpoints_s: Floats
    lost_s: Floats
    lost_gpu_s: Floats
    checkpoints_gpu_s: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterRun:
    """The fate of each job, in the order of the job set, and of the cluster; times in seconds.

    Attributes
    ----------
    arrival_s, start_s, finish_s : (J,) when it was submitted, got its GPUs at first, and was over.
    gpus : of each job (server, GPU of that server) of all its GPUs, in the end.
    queueing_s, gpu_wait_s, computing_s, network_wait_s, transferring_s : (J,) what its time went into, and
        add up to it: until it had GPUs; its ``startup_s``, and what its iterations' computing took longer
        because others used its GPUs; computing; ready to transfer and not admitted; transferring. Where
        transfers overlap the job's own computing the last two are the time in which nothing else went on.
        Where servers went down or jobs were preempted, the toll's ``lost_s`` is the rest.
    busy_gpu_s : seconds that all GPUs computed what was kept, added up.
    makespan_s : from the first arrival to the last end.
    gpu_utilization : busy time over that of all GPUs from the first arrival to the last end.
    events, wall_s : what the simulation looked at, and took, compiling left out.
    levels : (n, 2) if recorded: from when on the busiest server has carried how many transfers.
    timeline : if recorded.
    scheduling : what decided.
    toll : of outages, if there were to be any.
    preemptions : where jobs are preempted or resized.
    """

    scheduling: Scheduling
    arrival_s: Floats
    start_s: Floats
    finish_s: Floats
    gpus: tuple[tuple[tuple[int, int], ...], ...]
    queueing_s: Floats
    computing_s: Floats
    transferring_s: Floats
    network_wait_s: Floats
    gpu_wait_s: Floats
    busy_gpu_s: float
    makespan_s: float
    gpu_utilization: float
    events: int
    wall_s: float
    toll: OutageToll | None = None
    preemptions: PreemptionToll | None = None
    levels: Floats | None = None
    timeline: Timeline | None = None


def simulate(
    jobs: JobSet,
    cluster: Cluster,
    scheduling: Scheduling,
    record: TimelineWindow | None = None,
    outages: Outages | None = None,
) -> ClusterRun:
    """Run ``jobs`` on ``cluster``; record: also write down ``levels``, and this part as ``timeline``.

    outages : when servers are down; never without it.

    Raises
    ------
    UnknownNameError, HocketError
        As :func:`hocket.cluster.engine.state.make_state` raises them, and :meth:`Outages.check`; where jobs
        are not over because of outages.
    """
    began = time.perf_counter()
    state, rules, tick_s = make_state(jobs, cluster, scheduling)
    if outages is not None:
        outages.check(cluster.num_servers)
        state, rules, tick_s = make_state(jobs, cluster, scheduling, _coarser(tick_s, outages))
    clock = clocks.make_clock(state)
    log = _make_log(record, tick_s, len(state.jobs))
    prepared = time.perf_counter()
    clocks.run(state, rules, clock, log, 0)  # what has to be compiled or loaded is, before the clock goes on
    began += time.perf_counter() - prepared
    feed = None
    if outages is not None:
        feed = OutageFeed(outages, jobs, state, tick_s)
        feed.begin(clock.outages)
    levels = _run(state, rules, clock, log, feed)
    spans = log.spans[: clock.hands[0]["spans"]]
    return _outcome(
        state,
        np.array([job.arrival_s for job in jobs.jobs]),
        cluster,
        tick_s,
        scheduling=scheduling,
        events=int(clock.hands[0]["events"]),
        attempts=clock.outages.attempts,
        toll=None if outages is None else toll_of(state, clock.outages, tick_s, outages),
        preemptions=_preemptions(state, clock.outages.attempts, tick_s) if scheduling.stops_jobs else None,
        levels=levels * (tick_s, 1.0) if log.enabled else None,
        timeline=timeline_of(jobs, cluster, spans, tick_s) if log.enabled else None,
        began=began,
    )


def _make_log(record: TimelineWindow | None, tick_s: float, num_jobs: int) -> SimulationLog:
    return SimulationLog(
        enabled=record is not None,
        from_tick=round(min(record.from_s / tick_s, _NO_TICK)) if record is not None else 0,
        transfer_starts=np.full(num_jobs, NONE, np.int64),
        spans=np.zeros((record.most_spans if record is not None else 0, 5), np.int64),
        levels=np.zeros((_LEVELS_A_CALL if record is not None else 0, 2), np.int64),
    )


def _coarser(tick_s: float, outages: Outages) -> float:
    """A tick that leaves room for time in which nothing comes of a job, and for all maintenance."""
    last_s = max((window.to_s for window in outages.maintenance), default=0.0)
    digits = -round(math.log10(tick_s)) - 1
    while last_s * 10.0**digits > _NO_TICK / 4:
        digits -= 1
    return 10.0**-digits


def _run(
    state: EngineState,
    rules: Rules,
    clock: clocks.VirtualClock,
    log: SimulationLog,
    feed: OutageFeed | None,
) -> Ints:
    """Let the kernel run until every job is over; the levels it wrote down."""
    written = []
    over = False
    while not over:
        events = clock.outages.events
        if feed is not None and clock.hands[0]["outage"] == len(events) - 1:
            clock = clock._replace(outages=clock.outages._replace(events=feed.more()))
            clock.hands[0]["outage"] = 0
            feed.check_progress(clock.outages)
        over = clocks.run(state, rules, clock, log, _INSTANTS_A_CALL)
        written.append(log.levels[: clock.hands[0]["levels"]].copy())
        clock.hands[0]["levels"] = 0
    if feed is not None:
        feed.check_over()
    assert state.counts[0]["finished"] == len(state.jobs), "what fits an empty cluster is placed"
    return np.concatenate(written)


def _resizes(state: EngineState) -> Ints:
    """The times that each job went on with another number of GPUs, (J,)."""
    times: Ints = state.jobs["shrunk"] + state.jobs["grown"]
    return times


def _preemptions(state: EngineState, attempts: Records, tick_s: float) -> PreemptionToll:
    times, resizes = state.jobs["preemptions"], _resizes(state)
    lost_s: Floats = lost_ticks(state, attempts) * tick_s
    checkpoints_s = (times + resizes) * (state.jobs["checkpoint"] + state.jobs["relaunch"]) * tick_s
    return PreemptionToll(
        times=times.copy(),
        shrunk=state.jobs["shrunk"].copy(),
        grown=state.jobs["grown"].copy(),
        checkpoints_s=checkpoints_s,
        lost_s=lost_s,
        lost_gpu_s=attempts["lost_gpus"] * tick_s,
        checkpoints_gpu_s=checkpoints_s * state.jobs["gpus"],
    )


def _outcome(
    state: EngineState,
    arrival_s: Floats,
    cluster: Cluster,
    tick_s: float,
    *,
    began: float,
    attempts: Records,
    **described: Any,
) -> ClusterRun:
    rows: Records = state.jobs
    interrupted = attempts["interruptions"] + rows["preemptions"] + _resizes(state) > 0
    first_start = np.where(interrupted, attempts["first_start"], rows["start"])
    computing: Records = computing_ticks(state, attempts)
    queueing: Records = queueing_ticks(state, attempts)
    busy_s = float(busy_ticks(state, attempts).sum()) * tick_s
    makespan_s = float(rows["finish"].max() - rows["arrival"].min()) * tick_s
    gpu = state.workers["gpu"]
    places = [
        tuple(divmod(g, cluster.gpus_per_server) for g in gpu[first : first + num].tolist())
        for first, num in zip(rows["first_worker"].tolist(), rows["gpus"].tolist(), strict=True)
    ]
    return ClusterRun(
        arrival_s=arrival_s,
        # A job that starts at once starts when it arrives; its tick may be just before that.
        start_s=np.where(first_start == rows["arrival"], arrival_s, first_start * tick_s),
        finish_s=rows["finish"] * tick_s,
        gpus=tuple(places),
        queueing_s=queueing * tick_s,
        computing_s=computing * tick_s,
        transferring_s=rows["transferring"] * tick_s,
        network_wait_s=rows["network_wait"] * tick_s,
        gpu_wait_s=rows["gpu_wait"] * tick_s,
        busy_gpu_s=busy_s,
        makespan_s=makespan_s,
        gpu_utilization=busy_s / (makespan_s * cluster.num_gpus),
        wall_s=time.perf_counter() - began,
        **described,
    )
