"""Lines that an importer says of what it assumed and left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.workloads.trace_jobs import TraceRequest
from hocket.text import counted, listed

DRAWN_NOTE = (
    "the trace does not say what was trained: each job is given a model of the contention paper's Table III, "
    "drawn with the seed, with its times, size and memory on a V100"
)
DURATION_NOTE = (
    "iterations are the recorded duration over the model's forward and backward time: what waiting and "
    "communication it held counts as computing"
)
PART_NOTE = (
    "a part of a GPU takes that part of a GPU's 16 GB and a whole one all of it, whatever its type (simulate "
    "with --memory 16GB); parts of one GPU compute by turns, each as long as it took"
)


class Tally:
    """Counts of the jobs that an importer takes by their state, and leaves out by the reason.

    ``finished``: the state of jobs that succeeded.
    """

    def __init__(self, request: TraceRequest, finished: str) -> None:
        self._states: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._finished = finished
        self._only_finished = request.states == "finished"

    def leave_out(self, reason: str) -> None:
        """Count a job that is left out."""
        self._left_out[reason] += 1

    def takes(self, state: str) -> bool:
        """Count a job in that state; False if it is to be left out for it."""
        if self._only_finished and state != self._finished:
            self.leave_out(f"ended as {state or 'nothing known'}, not as {self._finished}")
            return False
        self._states[state or "unknown"] += 1
        return True

    def notes(self) -> list[str]:
        """Lines on the states of the jobs that were taken, and on those that were left out."""
        lines = [f"{counted(count, 'job')} left out: {why}" for why, count in sorted(self._left_out.items())]
        if not set(self._states) <= {self._finished}:
            counts = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
            lines.insert(
                0,
                f"by state: {counts}; all are kept, for as long as they held their GPUs, and succeed"
                f" (--states finished: those that ended as {self._finished} alone)",
            )
        return lines


def user_note(field: str, known: Sequence[str], jobs: JobSet) -> str:
    """A note on whose jobs are said to be, and on the other columns that could say it."""
    if not any(job.user for job in jobs.jobs):
        return f"no job says its {field}: all are those of one user"
    others = [name for name in known if name != field]
    if not others:
        return f"a job belongs to its {field}"
    left_out = f"; its {listed(others)} {'is' if len(others) == 1 else 'are'} left out (--user {others[0]})"
    return f"a job belongs to its {field}{left_out}"


def qos_note(priorities: Mapping[str, int]) -> str:
    """A note on the priorities of qualities of service."""
    order = ", ".join(f"{name} {priority}" for name, priority in priorities.items())
    return f"priorities are by quality of service: {order}, others 0 (--qos NAME=PRIORITY,...: other ones)"


def typed_note(jobs: Iterable[Job]) -> list[str]:
    """A note on jobs that run on some types of GPUs alone; none where no job does."""
    names = sorted({name for job in jobs for name in job.speeds})
    if not names:
        return []
    return [
        "jobs run on the types of GPUs that the trace says of them, at speed 1, where a cluster has types: "
        + ", ".join(names)
    ]
