"""Managers that end while a job with a range of GPUs saves: it goes on from that, and no GPU is given twice.

Its GPUs go to two jobs; it goes on with as many as are free then.
"""

from __future__ import annotations

import fcntl
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.database import Database
from hocket.cluster.live.job_record import Leaving
from hocket.cluster.live.manager_address import ask_manager, contact_of
from hocket.cluster.live.manager_messages import Status, Submit
from hocket.cluster.live.runnable_jobs import LiveJob
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.test_manager_kills import is_over, manager, until

GPUS = 4
_CLUSTER = ("--servers", "1", "--gpus-per-server", str(GPUS), "--placement", "ls", "--policy", "srsf-requeue")
_MEMORY = 16e9  # of a GPU that says nothing of it

# Steps to the number that is asked for, from the one that was kept; takes long to save, and ends as if done.
# It saves at its end, too: it may be asked to leave at that very moment.
_PROGRAM = """import os, pathlib, signal, sys, time
kept, rank = pathlib.Path(os.environ['HOCKET_CHECKPOINT'], 'step'), os.environ['RANK']
step = int(kept.read_text()) if kept.exists() else 0
def note(what):
    words = (what, os.environ['HOCKET_GATE_ATTEMPT'], rank, step, time.monotonic())
    print(*words, file=open(sys.argv[1], 'a'))
def leave(*_):
    note('asked')
    time.sleep(float(sys.argv[3]))
    if rank == '0':
        kept.write_text(str(step))
    note('end')
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
note('begin')
while step < int(sys.argv[2]):
    step += 1
    time.sleep(0.05)
if rank == '0':
    kept.write_text(str(step))
note('end')"""


def noting(name: str, folder: Path, gpus: int, *, steps: int = 10, **changes: object) -> LiveJob:
    command = (sys.executable, "-c", _PROGRAM, str(folder / "notes"), str(steps), "2")
    return live_job(name, gpus, memory_bytes=_MEMORY, command=command, **changes)


def the_long_one(folder: Path) -> LiveJob:
    return noting("long", folder, GPUS, steps=100, gpus_min=2, iterations=10**6, checkpoint_s=0.5)


def others(folder: Path) -> tuple[LiveJob, LiveJob]:
    """One of them has the others leave; the other one gets what that has not."""
    return noting("three", folder, 3, iterations=5), noting("one", folder, 1, iterations=8)


def has_computed(folder: Path) -> Callable[[Status], bool]:
    """Whether the ranks of the long one run, and have had its GPUs for longer than a preemption costs."""

    def due(status: Status) -> bool:
        placed_s, notes = status.jobs[0].placed_s, folder / "notes"
        begun = notes.exists() and len(notes.read_text().splitlines()) == GPUS
        return begun and placed_s is not None and status.now_s - placed_s > 1.6

    return due


def saves(folder: Path) -> Callable[[Status], bool]:
    """Whether the ranks of the long one have been asked to leave, and save."""

    def due(status: Status) -> bool:
        asked = (folder / "notes").read_text().count("asked") == GPUS
        return asked and status.jobs[0].stage == "saving"

    return due


def assert_went_on(folder: Path, states: Mapping[str, str], tried: Sequence[str]) -> None:
    """All is over; the long one was asked to leave once, and did each step once, the one under way twice."""
    assert states == dict.fromkeys(("long", "three", "one"), "finished")
    (why,) = tried
    assert why.startswith("preempted for ")
    notes = [line.split() for line in (folder / "notes").read_text().splitlines()]
    asked = Counter((attempt, rank) for what, attempt, rank, *_ in notes if what == "asked")
    assert sorted(asked) == [("1-1", str(rank)) for rank in range(GPUS)]
    assert set(asked.values()) == {1}, "it was disturbed as it saved"
    (saved,) = (
        int(step) for what, attempt, rank, step, _ in notes if (what, attempt, rank) == ("end", "1-1", "0")
    )
    begun = {attempt: int(step) for what, attempt, rank, step, _ in notes if (what, rank) == ("begin", "0")}
    assert begun == {"1-1": 0, "1-2": saved, "2-1": 0, "3-1": 0}
    assert 0 < saved < 100
    last = [step for what, attempt, _, step, _ in notes if (what, attempt) == ("end", "1-2")]
    assert set(last) == {"100"}
    assert 2 <= len(last) <= GPUS
    at_once = 0
    for what, *_ in sorted(notes, key=lambda note: (float(note[-1]), note[0] == "begin")):
        at_once += {"begin": 1, "end": -1, "asked": 0}[what]
        assert 0 <= at_once <= GPUS, "a GPU was given twice"


def test_another_manager_goes_on_while_it_saves(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"servers": 1, "gpus": GPUS, "policy": "srsf-requeue", "memory": _MEMORY}
    with running(tmp_path, [the_long_one(tmp_path)], keep=True, **changes) as first:
        first.until(has_computed(tmp_path))
        first.ask(Submit(others(tmp_path)))
        first.until(saves(tmp_path))
    with running(tmp_path, **changes) as second:
        assert saves(tmp_path)(second.status())
        records = second.join()
    states = {name: each.state for name, each in records.items()}
    assert_went_on(tmp_path, states, [each.why for each in records["long"].tried])
    assert records["long"].preempted == 1
    assert all(record.leaving is None for record in records.values())


def has_ended(place: Path) -> bool:
    """Whether nothing of a rank that a guard watches is left: what the guard has locked is free."""
    with (place.with_name(place.name + ".lock")).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return place.with_name(place.name + ".status").exists()


def test_a_job_that_ends_by_itself_before_it_is_asked_to_leave_is_over(tmp_path: Path) -> None:
    """Its manager is gone between the preemption and the ranks' being asked."""
    job = noting("long", tmp_path, 1, steps=10, iterations=10**6, checkpoint_s=0.5)
    with running(
        tmp_path, [job], servers=1, gpus=1, policy="srsf-requeue", memory=_MEMORY, keep=True
    ) as first:
        first.until(lambda _: (tmp_path / "notes").exists())
    database = Database(tmp_path)
    (record,) = database.jobs()
    record.leaving = Leaving(0.0, "preempted for another")
    database.put([record])
    database.close()
    while not has_ended(tmp_path / "node0" / "1-1-0"):
        time.sleep(0.05)
    assert "end" in (tmp_path / "notes").read_text()
    with running(tmp_path, servers=1, gpus=1, policy="srsf-requeue", memory=_MEMORY) as second:
        record = second.join()["long"]
    assert (record.state, record.attempt, record.preempted, record.tried) == ("finished", 1, 0, ())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_manager_that_is_killed_while_it_saves_forgets_nothing(tmp_path: Path) -> None:
    """The ranks may have saved and ended, with status 0, when the next manager looks at them."""
    state = tmp_path / "state"
    with manager(state, _CLUSTER):
        ask_manager(contact_of(state), Submit((the_long_one(tmp_path),)))
        until(state, has_computed(tmp_path))
        ask_manager(contact_of(state), Submit(others(tmp_path)))
        until(state, saves(tmp_path))
    with manager(state, _CLUSTER):
        jobs = until(state, is_over).jobs
    states = {job.id: job.state for job in jobs}
    assert_went_on(tmp_path, states, [each.why for each in jobs[0].tried])
