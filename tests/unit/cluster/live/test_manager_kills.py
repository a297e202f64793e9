"""Managers that are killed around submissions: no acknowledged job is lost, none runs to its end twice.

HOCKET_TEST_KILLS in the environment says how many are killed, 5 by default.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from hocket.cluster.live.manager_address import ask_manager, contact_of
from hocket.cluster.live.manager_messages import AskStatus, Status, Submit
from hocket.cluster.live.runnable_jobs import LiveJob
from hocket.errors import HocketError
from tests.unit.cluster.live.clusters import live_job

KILLS = int(os.environ.get("HOCKET_TEST_KILLS", "5"))
JOBS_EACH = 5
LATEST_S = 0.5  # after the first submission to a manager
_LIMIT_S = 60.0
_CLUSTER = ("--servers", "2", "--gpus-per-server", "2", "--placement", "ls", "--policy", "srsf-1")

# Leaves a line with its attempt and its rank; nothing of Hocket's, so it starts at once.
_PROGRAM = """import os, sys, time
line = f"{os.environ['HOCKET_GATE_ATTEMPT']} {os.environ['RANK']}\\n"
with open(sys.argv[1], 'a') as file:
    file.write(line)
time.sleep(float(sys.argv[2]))"""


def noting(name: str, folder: Path, chance: random.Random) -> LiveJob:
    seconds = str(chance.uniform(0.0, 0.5))
    command = (sys.executable, "-c", _PROGRAM, str(folder / f"{name}.ran"), seconds)
    return live_job(name, chance.choice((1, 1, 2)), command=command)


@contextlib.contextmanager
def manager(state: Path, cluster: Sequence[str] = _CLUSTER) -> Iterator[subprocess.Popen[str]]:
    """A manager that listens; killed in the end."""
    command = [
        sys.executable,
        "-m",
        "hocket",
        "cluster",
        "serve",
        "--state",
        str(state),
        "--page",
        "off",
        *cluster,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        while said.startswith("loading the engine: "):  # on a busy machine
            said = process.stderr.readline()
        assert said.startswith("manager at "), said
        yield process
    finally:
        process.kill()
        process.communicate(timeout=_LIMIT_S)


def acknowledged(state: Path, job: LiveJob) -> bool:
    """Whether a manager took the job, as far as its command knows."""
    try:
        notes = ask_manager(contact_of(state), Submit((job,))).notes
    except HocketError:
        return False
    assert len(notes) == 1
    return True


def until(state: Path, due: Callable[[Status], bool]) -> Status:
    """The cluster, once it is as it is to be."""
    deadline_s = time.monotonic() + _LIMIT_S
    while True:
        status = ask_manager(contact_of(state), AskStatus()).status
        assert status is not None
        if due(status):
            return status
        assert time.monotonic() < deadline_s, status
        time.sleep(0.1)


def is_over(status: Status) -> bool:
    """Whether no job waits or runs."""
    return all(job.state not in ("queued", "running") for job in status.jobs)


def ran_once(path: Path, ranks: int) -> int:
    """How often a job with so many ranks was begun; all of its ranks were started once, the last time."""
    attempts: dict[str, list[int]] = {}
    for line in path.read_text().splitlines():
        attempt, rank = line.split()
        attempts.setdefault(attempt, []).append(int(rank))
    last = max(attempts, key=lambda attempt: int(attempt.partition("-")[2]))
    assert sorted(attempts.pop(last)) == list(range(ranks)), path.read_text()
    # A manager's end kept these from starting: they could only be given up.
    for begun in attempts.values():
        assert len(set(begun)) == len(begun) < ranks, path.read_text()
    return 1 + len(attempts)


@pytest.mark.slow
@pytest.mark.timeout(60 + 40 * KILLS)
def test_managers_that_are_killed_around_submissions_lose_no_job_and_finish_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_address._CONNECT_S", 1.0)
    state, chance = tmp_path / "state", random.Random(0)
    jobs = [noting(f"j{number}", tmp_path, chance) for number in range(JOBS_EACH * KILLS)]
    known, unsure, tokens = set[str](), list[LiveJob](), set[str]()
    for kill in range(KILLS):
        with manager(state) as process:
            tokens.add(contact_of(state).token)
            due = threading.Timer(chance.uniform(0.0, LATEST_S), process.kill)
            due.start()
            unsure += jobs[kill * JOBS_EACH :][:JOBS_EACH]
            for job in unsure.copy():
                if process.poll() is None and acknowledged(state, job):
                    known.add(job.id)
                    unsure.remove(job)
            due.join()
    with manager(state):
        tokens.add(contact_of(state).token)
        assert known <= {job.id for job in ask_manager(contact_of(state), AskStatus()).status.jobs}
        assert all(acknowledged(state, job) for job in unsure)
        status = until(state, is_over)
    assert {job.id: job.state for job in status.jobs} == {job.id: "finished" for job in jobs}
    again = sum(ran_once(tmp_path / f"{job.id}.ran", job.gpus) - 1 for job in jobs)
    assert len(tokens) == 1
    print(
        f"{KILLS} kills, {len(jobs)} jobs, {len(known)} of them acknowledged by a manager that was killed; "
        f"{again} begun again, as some of their ranks had not been started"
    )
