"""Outages for a run: given to its clock, and what became of its jobs by them."""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from hocket.cluster.engine.records import FINISHED, Floats, Ints, Records
from hocket.cluster.engine.state import EngineState
from hocket.cluster.jobs import JobSet
from hocket.cluster.simulator.outage_clock import NO_EVENT, TICK, OutageClock
from hocket.cluster.simulator.outages import Outages, OutageToll
from hocket.errors import HocketError

_EVENTS_A_CALL = 4096
_MOST_TICKS = 2.0**62
_MOST_INTERRUPTIONS = 10_000


class OutageFeed:
    """Outages, of which the kernel is given so many at a time; those past all counting never come.

    Writes what jobs keep, and what they take to launch, into the clock's attempts.
    """

    def __init__(self, outages: Outages, jobs: JobSet, state: EngineState, tick_s: float) -> None:
        self._jobs, self._state, self._tick_s = jobs, state, tick_s
        self._keeps_every = [outages.iterations_between(job.forward_s + job.backward_s) for job in jobs.jobs]
        self._launch = state.jobs["launch"].copy()
        ticks = ((event.at_s / tick_s, event) for event in outages.events(len(state.sites.server_load)))
        counted = takewhile(lambda each: each[0] < _MOST_TICKS, ticks)
        self._rows = ((round(tick), event.server, int(event.begins)) for tick, event in counted)
        self._next = next(self._rows, NO_EVENT)

    def begin(self, clock: OutageClock) -> None:
        """Write down what the engine does not know of jobs, or forgets when they have launched."""
        clock.attempts["keeps_every"], clock.attempts["launch"] = self._keeps_every, self._launch

    def more(self) -> Ints:
        """The next events as rows of ``OutageClock.events``, and one more to look at.

        Events of one tick are not parted: all of them are of one instant.
        """
        rows: list[tuple[int, int, int]] = []
        while self._next is not NO_EVENT and (
            len(rows) < _EVENTS_A_CALL or self._next[TICK] == rows[-1][TICK]
        ):
            rows.append(self._next)
            self._next = next(self._rows, NO_EVENT)
        return np.array([*rows, self._next], np.int64)

    def check_progress(self, clock: OutageClock) -> None:
        """Refuse to go on where a job is interrupted without end; raises HocketError."""
        j = int(clock.attempts["interruptions"].argmax())
        if clock.attempts[j]["interruptions"] > _MOST_INTERRUPTIONS:
            kept, job = int(self._state.jobs[j]["kept"]), self._jobs.jobs[j]
            raise HocketError(
                f"job '{job.id}' was interrupted more than {_MOST_INTERRUPTIONS} times and has kept {kept}"
                f" of its {job.iterations} iterations; give a longer --mtbf or a shorter --checkpoint-every"
            )

    def check_over(self) -> None:
        """Refuse a run in which servers are down so much that time has run out; raises HocketError."""
        for job, row in zip(self._jobs.jobs, self._state.jobs, strict=True):
            if row["stage"] != FINISHED:
                raise HocketError(
                    f"job '{job.id}' is not over after {_MOST_TICKS * self._tick_s / 86400:.0f} days: too few"
                    " of the servers that it needs are up at once; give a longer --mtbf or a shorter --repair"
                )


def computing_ticks(state: EngineState, attempts: Records) -> Ints:
    """The ticks that each job computed what was kept, on each of its GPUs, in a run that is over, (J,)."""
    ticks: Ints = _computed_last(state) + attempts["computed"]
    return ticks


def busy_ticks(state: EngineState, attempts: Records) -> Ints:
    """The same of all its GPUs, (J,), however many it had at a time."""
    ticks: Ints = _computed_last(state) * state.jobs["gpus"] + attempts["computed_gpus"]
    return ticks


def _computed_last(state: EngineState) -> Ints:
    """The ticks that each job computed since it was placed last, (J,)."""
    rows = state.jobs
    ticks: Ints = (rows["iterations"] - rows["kept"]) * (rows["forward"] + rows["backward"])
    return ticks


def queueing_ticks(state: EngineState, attempts: Records) -> Ints:
    """The ticks that each job queued in a run that is over, (J,): those in which it had no GPU."""
    ticks: Ints = state.jobs["start"] - state.jobs["arrival"] - attempts["held"]
    return ticks


def lost_ticks(state: EngineState, attempts: Records) -> Records:
    """The ticks that each job had GPUs for nothing in a run that is over, (J,)."""
    rows = state.jobs
    kept = computing_ticks(state, attempts)
    waits = queueing_ticks(state, attempts) + rows["gpu_wait"] + rows["transferring"] + rows["network_wait"]
    ticks: Records = rows["finish"] - rows["arrival"] - waits - kept
    return ticks


def toll_of(state: EngineState, clock: OutageClock, tick_s: float, outages: Outages) -> OutageToll:
    """The toll of a run that is over."""
    lost_s: Floats = lost_ticks(state, clock.attempts) * tick_s
    return OutageToll(
        outages=outages,
        went_down=int(clock.failures[0]),
        interruptions=clock.attempts["interruptions"].copy(),
        lost_s=lost_s,
        lost_gpu_s=clock.attempts["lost_gpus"] * tick_s,
    )
