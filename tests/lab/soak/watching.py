"""Clients and watchers of a soak: who submits, who cancels, and who looks at processes and at status."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from hocket.cluster.live.manager_messages import AskStatus, AskWhy, Cancel, ManagerAnswer, Status, Submit
from hocket.process_stats import process_stat
from tests.lab.soak.cluster import Soaked
from tests.lab.soak.work import Work

_LOOK_EVERY_S = 0.7
_AGAIN_S = 0.3

Held = dict[str, frozenset[str]]
"""The attempts whose ranks are on a GPU at one time, by the GPU's id."""


class Clients:
    """Submits jobs and cancels some, again and again until a manager has answered.

    ``acknowledged``: the time of the answer about each job; ``cancelled``: what was answered, and when;
    ``lines``: of each job that was refused why.
    """

    def __init__(self, soaked: Soaked, day: Sequence[Work]) -> None:
        self._soaked, self._day = soaked, day
        self.acknowledged: dict[str, float] = {}
        self.cancelled: dict[str, tuple[str, float]] = {}
        self.lines: dict[str, str] = {}

    def submit(self, begin_s: float) -> None:
        """Submit the day's jobs, each at its time after ``begin_s`` of the monotonic clock."""
        for work in self._day:
            _sleep_until(begin_s + work.submit_s)
            answer = None
            while answer is None:
                answer = self._soaked.ask(Submit((work.job,)))
                if answer is None:
                    time.sleep(_AGAIN_S)
            if isinstance(answer, str):
                self.lines[work.job.id] = answer
                why = self._soaked.ask(AskWhy(work.job.id))  # a manager that is killed forgets it
                assert not isinstance(why, ManagerAnswer) or answer in why.notes[0], why
            else:
                self.acknowledged[work.job.id] = time.time()

    def cancel(self, begin_s: float) -> None:
        """Cancel those of the jobs that are to be, each at its time after ``begin_s``."""
        due = sorted((work.cancel_s, work.job.id) for work in self._day if work.cancel_s is not None)
        for cancel_s, job in due:
            _sleep_until(begin_s + cancel_s)
            while True:
                answer = self._soaked.ask(Cancel(job)) if job in self.acknowledged else None
                if isinstance(answer, ManagerAnswer):
                    self.cancelled[job] = answer.notes[0], time.time()
                    break
                assert answer is None, answer
                time.sleep(_AGAIN_S)


class Watcher:
    """Looks at the processes and at the status now and then; ``held``: what was ever on GPUs together."""

    def __init__(self, soaked: Soaked) -> None:
        self._soaked = soaked
        self.held: set[tuple[str, frozenset[str]]] = set()
        self.rounds = 0
        self.crowded: list[str] = []
        self._ends = threading.Event()

    def run(self) -> None:
        """Look until :meth:`end`."""
        while not self._ends.wait(_LOOK_EVERY_S):
            self._look_at_processes()
            answer = self._soaked.ask(AskStatus())
            if isinstance(answer, ManagerAnswer) and answer.status is not None:
                self._look_at_status(answer.status)
            self.rounds += 1

    def end(self) -> None:
        """Look no more."""
        self._ends.set()

    def _look_at_processes(self) -> None:
        """Of each GPU the attempts that are there; those seen together were together at an instant."""
        there: dict[str, dict[str, int]] = {}
        for pid, told in self._soaked.processes().items():
            gpu = told["CUDA_VISIBLE_DEVICES"].split(",")[int(told["LOCAL_RANK"])]
            there.setdefault(gpu, {})[told["HOCKET_GATE_ATTEMPT"]] = pid
        for gpu, attempts in there.items():
            alive = frozenset(attempt for attempt, pid in attempts.items() if _runs(pid))
            if alive:
                self.held.add((gpu, alive))

    def _look_at_status(self, status: Status) -> None:
        gpus = status.gpus_per_server
        for job in status.jobs:
            least = job.wanted if job.wanted_min is None else job.wanted_min
            if job.state == "running" and not least <= len(set(job.gpus)) <= job.wanted:
                self.crowded.append(f"{job.id} runs on {job.gpus} and wants {least} to {job.wanted}")
            if any(slot >= gpus or server >= len(status.nodes) for server, slot in job.gpus):
                self.crowded.append(f"{job.id} is on {job.gpus}")
            if not job.reason or "\n" in job.reason:
                self.crowded.append(f"{job.id} has the reason {job.reason!r}")


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return process_stat(pid).state != "Z"
    return False


def _sleep_until(due_s: float) -> None:
    time.sleep(max(0.0, due_s - time.monotonic()))


@contextlib.contextmanager
def beside(*work: Callable[[], None]) -> Iterator[tuple[list[threading.Thread], list[BaseException]]]:
    """Threads that do ``work``, and the list to which each adds the exception that ends it."""
    errors: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[each], daemon=True) for each in work]
    for thread in threads:
        thread.start()
    yield threads, errors
