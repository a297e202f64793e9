"""The audit of a soak: a cluster's database and its ranks' own records, beside what was done to it."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hocket.cluster.engine.policies.srsf_requeue import MOST_PREEMPTIONS
from hocket.cluster.engine.resizing import MOST_SHRUNK
from hocket.cluster.live.database import FILE, read_record
from hocket.cluster.live.job_record import Record, Tried
from tests.lab.soak.cluster import GPUS_PER_NODE, LOST_AFTER_S, RESTARTS, TYPES
from tests.lab.soak.faults import Log, Span
from tests.lab.soak.watching import Clients, Watcher
from tests.lab.soak.work import HALF_BYTES, Work

_SHRUNK = re.compile(r"shrunk from \d+ to \d+ GPUs for (?P<by>\S+)")
_GROWN = re.compile(r"grown from \d+ to \d+ GPUs")
_ASKED = re.compile(f"preempted for |{_SHRUNK.pattern}|{_GROWN.pattern}")
_SLACK_S = 3.0  # between an answer and what ranks that were being started do, on a busy machine


class Line(NamedTuple):
    """A line of a rank's own record: ``what`` is begin, done or double."""

    what: str
    attempt: str
    rank: int
    gpu: str
    time_s: float


class Audit:
    """The end of a soak; ``wrong``: all that is not as it has to be, a line each."""

    def __init__(self, folder: Path, day: Sequence[Work], clients: Clients, log: Log) -> None:
        self._folder, self._clients, self._log = folder, clients, log
        self._day = {work.job.id: work for work in day}
        self.wrong: list[str] = []
        with contextlib.closing(sqlite3.connect(folder / "state" / FILE)) as connection:
            numbers = [number for (number,) in connection.execute("select number from jobs order by number")]
            read = (read_record(connection, number) for number in numbers)
            self.records = {record.job.id: record for record in read if record is not None}
            settings = dict(connection.execute("select name, value from settings"))
            self._events = list(connection.execute("select job, what from events order by rowid"))
        self._epoch_s = float(settings["epoch_s"])
        self._devices: dict[str, list[str]] = json.loads(settings["devices"])

    def run(self, watcher: Watcher) -> list[str]:
        """All that is wrong."""
        self._nothing_is_lost()
        for record in self.records.values():
            lines = self._lines(record.job.id)
            self._end_is_explained(record)
            self._attempts_are_explained(record)
            self._gpus_are_such_as_it_accepts(record)
            self._records_agree(record, lines)
        self._no_gpu_twice(watcher)
        self._events_are_in_order()
        self.wrong += watcher.crowded
        return self.wrong

    def states(self) -> Counter[str]:
        """Jobs by state, counted."""
        return Counter(record.state for record in self.records.values())

    def attempts(self) -> int:
        """Starts of jobs, counted."""
        return sum(record.attempt for record in self.records.values())

    def resizes(self) -> tuple[int, int]:
        """The times that jobs went on with fewer GPUs, and with more."""
        records = self.records.values()
        return sum(record.shrunk for record in records), sum(record.grown for record in records)

    def preemptions(self) -> int:
        """Times that jobs left their GPUs to others."""
        return sum(record.preempted for record in self.records.values())

    def narrow(self) -> int:
        """Attempts with fewer GPUs than their job may have."""
        jobs = self.records.values()
        return sum(0 < len(gpus) < record.job.gpus for record in jobs for gpus in _gpus_of(record).values())

    def _check(self, holds: object, line: str) -> None:
        if not holds:
            self.wrong.append(line)

    def _nothing_is_lost(self) -> None:
        known = self.records.keys()
        for job in self._clients.acknowledged.keys() - known:
            self._check(False, f"{job} was acknowledged and is not in the database")
        for job in self._day.keys() - self._clients.acknowledged.keys():
            refused = self._clients.lines.get(job, "")
            self._check(
                self._day[job].end == "large" and "and the cluster has" in refused and job not in known,
                f"{job} was not acknowledged: {refused}",
            )

    def _end_is_explained(self, record: Record) -> None:
        job, end = record.job.id, self._day[record.job.id].end
        self._check(record.over, f"{job} is {record.state}")
        answer, _ = self._clients.cancelled.get(job, ("", 0.0))
        if record.state == "cancelled":
            self._check(self._day[job].cancel_s is not None, f"{job} is cancelled and nobody asked")
        elif answer:
            self._check(answer == f"{job}: {record.state} already", f"{job} is {record.state}: {answer}")
        if record.state == "finished":
            self._check(end not in ("fails", "wrong"), f"{job} finished")
        if record.state == "failed":
            own = {"fails": "ended with status 3", "wrong": "cannot run its command: nosuch"}.get(end)
            stopped = record.preempted + record.shrunk + record.grown
            counted = record.attempt - record.lost_attempts - record.own_failures - stopped
            faulty = "was killed" in record.why or " lost " in record.why
            last = faulty and counted == RESTARTS + 1
            self._check(last or (own and own in record.why), f"{job} failed: {record.why}, {record}")

    def _attempts_are_explained(self, record: Record) -> None:
        """Faults of ours touched each attempt that was followed by another one, as its reason says."""
        for number, tried in enumerate(record.tried, 1):
            name = f"{record.number}-{number}"
            begin_s, end_s = self._epoch_s + tried.start_s, self._epoch_s + tried.end_s
            nodes = {f"node{gpu // GPUS_PER_NODE}" for gpu in tried.gpus}
            away = [span for span in self._log.away if span.node in nodes]
            if tried.why.startswith("preempted for "):
                by = self.records.get(tried.why.removeprefix("preempted for "))
                holds = by is not None and self._left_to(record, tried, by)
            elif match := _SHRUNK.match(tried.why):
                by = self.records.get(match["by"])
                holds = by is not None and self._left_to(record, tried, by)
            elif _GROWN.match(tried.why):
                holds = record.job.checkpoint_s is not None
            elif "was killed" in tried.why:
                holds = name in self._log.touched
            elif "has not answered for" in tried.why:
                holds = any(min(span.end_s, end_s) - span.begin_s > LOST_AFTER_S / 2 for span in away)
            elif "was not started" in tried.why:
                holds = _during(self._log.managers, begin_s, end_s)
            elif "cannot be started" in tried.why:
                holds = _during(away, begin_s, end_s)
            else:
                # A replayed one says so itself where a peer was lost.
                holds = self._day[record.job.id].end == "replayed" and name in self._log.touched
            self._check(holds, f"{record.job.id}, attempt {name}, nothing of ours did that: {tried.why}")

    def _left_to(self, record: Record, tried: Tried, by: Record) -> bool:
        """True if an attempt at ``by`` was placed, amid that attempt, on GPUs of it."""
        given = _gpus_of(by)
        starts = {number: each.start_s for number, each in enumerate(by.tried, 1)}
        if by.placed_s is not None:
            starts[by.attempt] = by.placed_s
        return record.job.checkpoint_s is not None and any(
            tried.start_s < start_s <= tried.end_s and set(given[number]) & set(tried.gpus)
            for number, start_s in starts.items()
        )

    def _gpus_are_such_as_it_accepts(self, record: Record) -> None:
        job = record.job
        preempted = [each for each in record.tried if each.why.startswith("preempted for ")]
        self._check(len(preempted) == record.preempted <= MOST_PREEMPTIONS, f"{job.id}: {record}")
        shrunk = [each for each in record.tried if _SHRUNK.match(each.why)]
        grown = [each for each in record.tried if _GROWN.match(each.why)]
        self._check(len(shrunk) == record.shrunk <= MOST_SHRUNK, f"{job.id}: {record}")
        self._check(len(grown) == record.grown <= record.shrunk + MOST_SHRUNK, f"{job.id}: {record}")
        self._check(record.leaving is None, f"{job.id} leaves yet: {record}")
        for gpus in _gpus_of(record).values():
            half = len(self._devices) * GPUS_PER_NODE // len(TYPES)
            types = {TYPES[gpu // half] for gpu in gpus}
            accepted = job.speeds.keys() if job.speeds else set(TYPES)
            self._check(not gpus or (len(types) == 1 and types <= accepted), f"{job.id} had {types}")
            self._check(not gpus or job.fewest_gpus <= len(gpus) <= job.gpus, f"{job.id} had {gpus}")

    def _records_agree(self, record: Record, lines: Sequence[Line]) -> None:
        job, end = record.job.id, self._day[record.job.id].end
        for line in lines:
            self._check(line.what != "double", f"{job}: GPU {line.gpu} was another's: {line}")
        begun = Counter((line.attempt, line.rank) for line in lines if line.what == "begin")
        for (attempt, rank), count in begun.items():
            self._check(count == 1, f"{job}: rank {rank} of attempt {attempt} began {count} times")
            self._check(int(attempt.partition("-")[2]) <= record.attempt, f"{job} began {attempt}: {record}")
        done = {(line.attempt, line.rank) for line in lines if line.what == "done"}
        last, given = f"{record.number}-{record.attempt}", _gpus_of(record)
        if record.state == "finished" and end != "replayed" and last not in self._log.touched:
            whole = all((last, rank) in done for rank in range(len(record.gpus)))
            self._check(whole, f"{job} finished, and its ranks have not")
        for number in range(1, record.attempt):
            name = f"{record.number}-{number}"
            whole = all(
                (name, rank) in done for rank in range(len(given.get(number, range(record.job.gpus))))
            )
            asked = number <= len(record.tried) and _ASKED.match(record.tried[number - 1].why)
            excused = end == "fails" or asked or name in self._log.touched
            self._check(
                not whole or excused or self._was_away(record, number),
                f"{job}: all ranks of {name} were done, and it was started again",
            )
        self._gpus_agree(record, lines)
        answer, at_s = self._clients.cancelled.get(job, ("", 0.0))
        if answer == f"{job}: cancelled":
            late = [line for line in lines if line.what == "begin" and line.time_s > at_s + _SLACK_S]
            self._check(not late, f"{job} was cancelled at {at_s:.2f}, and began: {late}")

    def _was_away(self, record: Record, number: int) -> bool:
        if number > len(record.tried):
            return False  # it was started again without having ended
        tried = record.tried[number - 1]
        nodes = {f"node{gpu // GPUS_PER_NODE}" for gpu in tried.gpus}
        away = [span for span in self._log.away if span.node in nodes]
        return _during(away, self._epoch_s + tried.start_s - 15, self._epoch_s + tried.end_s)

    def _gpus_agree(self, record: Record, lines: Sequence[Line]) -> None:
        given, placed = _gpus_of(record), {record.attempt: record.placed_s}
        for number, tried in enumerate(record.tried, 1):
            placed[number] = tried.start_s
        for line in lines:
            number = int(line.attempt.partition("-")[2])
            gpus, placed_s = given.get(number, ()), placed.get(number)
            if not gpus:
                continue
            node, slot = divmod(gpus[line.rank], GPUS_PER_NODE)
            self._check(
                line.gpu == self._devices[f"node{node}"][slot],
                f"{record.job.id}: rank {line.rank} had GPU {line.gpu}, and was given {node}:{slot}",
            )
            at_s = 0.0 if placed_s is None else self._epoch_s + placed_s
            for span in self._log.drained:
                inside = span.node == f"node{node}" and span.begin_s < at_s < span.end_s
                self._check(not inside, f"{record.job.id} was placed on {span.node}, which was drained")

    def _no_gpu_twice(self, watcher: Watcher) -> None:
        halves = {
            str(record.number): record.job.memory_bytes / HALF_BYTES for record in self.records.values()
        }
        for gpu, attempts in watcher.held:
            used = sum(halves[attempt.partition("-")[0]] for attempt in attempts)
            jobs = {attempt.partition("-")[0] for attempt in attempts}
            self._check(used <= 2, f"GPU {gpu} had {sorted(attempts)} at a time")
            self._check(len(jobs) == len(attempts), f"two attempts at a time: {sorted(attempts)}")

    def _events_are_in_order(self) -> None:
        over: set[str] = set()
        for job, what in self._events:
            if job is None or job not in self.records:
                continue
            if what.startswith("placed on "):
                self._check(job not in over, f"{job} was over, and {what}")
            if what.startswith(("finished", "cancelled")) or (
                what.startswith("failed") and "tried again" not in what
            ):
                over.add(job)

    def _lines(self, job: str) -> list[Line]:
        path = self._folder / "said" / job
        rows = [row.split() for row in path.read_text().splitlines()] if path.exists() else []
        return [Line(what, name, int(rank), gpu, float(at_s)) for what, name, rank, gpu, at_s in rows]


def _gpus_of(record: Record) -> dict[int, tuple[int, ...]]:
    """The GPUs of each attempt at a job, by its number."""
    return {record.attempt: record.gpus} | {
        number: tried.gpus for number, tried in enumerate(record.tried, 1)
    }


def _during(spans: Sequence[Span], begin_s: float, end_s: float) -> bool:
    """True if one of ``spans``, or what follows it within moments, meets this time."""
    return any(span.begin_s - _SLACK_S <= end_s and begin_s <= span.end_s + _SLACK_S for span in spans)
