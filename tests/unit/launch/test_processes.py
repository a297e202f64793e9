"""What happens to a job whose processes fail, decided without any but for one."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.launch import Rule, ServedJob
from hocket.launch.processes import _JobRun, _Process
from tests.tokens import TOKEN

_NOBODY = 2**22 + 1  # above every process number
_TOLD = "os.environ['RANK'], os.environ['HOCKET_ATTEMPT']"


class Started(_JobRun):
    """Processes that have failed as soon as they are started; ``attempts``: of which worker, in order.

    ``joined``: (server, worker); unless it is given, all have.
    """

    def __init__(
        self, rule: Rule, restarts: int, servers: int = 1, joined: Sequence[tuple[int, int]] | None = None
    ) -> None:
        job = ServedJob(address="127.0.0.1:1", token=TOKEN, rule=rule, servers=servers)
        super().__init__(job, "127.0.0.1:2", ["script.py"], {}, restarts)
        everybody = itertools.product(range(servers), range(rule.workers))
        for server, worker in everybody if joined is None else joined:
            self._joined.note(server, worker)
        self.attempts: list[tuple[int, int]] = []
        self._workers = [self._started(worker, 0) for worker in range(rule.workers)]

    def _started(self, worker: int, attempt: int) -> _Process:
        self.attempts.append((worker, attempt))
        popen = cast(Any, SimpleNamespace(returncode=1, poll=lambda: 1, pid=_NOBODY))
        return _Process(f"worker {worker}", popen, worker, attempt)

    def goes_on_without(self, worker: int) -> bool:
        return self._goes_on(self._workers[worker])


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_worker_that_was_given_up_is_not_started_again(restarts: int) -> None:
    run = Started(Rule(mode="async", workers=3), restarts)
    for _ in range(10):
        assert run.goes_on_without(1)
    assert [attempt for worker, attempt in run.attempts if worker == 1] == list(range(restarts + 1))
    assert all(run.goes_on_without(2) for _ in range(10))
    # The last one that is left is not given up.
    assert [run.goes_on_without(0) for _ in range(restarts + 1)] == [True] * restarts + [False]


def test_a_synchronous_job_goes_on_without_its_backups_alone() -> None:
    run = Started(Rule(workers=3, backup=1), 5)
    assert run.goes_on_without(0)
    assert run.goes_on_without(0)
    assert not run.goes_on_without(1)


ASYNC = Rule(mode="async", workers=3)
BOUNDED = Rule(mode="async", workers=3, staleness=1)
BACKUP = Rule(workers=3, backup=1)


@pytest.mark.parametrize(
    ("rule", "joined", "worker", "goes_on"),
    [
        (ASYNC, [], 1, True),
        # Without worker 0's values nobody begins.
        (ASYNC, [], 0, False),
        (BACKUP, [], 0, False),
        (BACKUP, [], 1, True),
        (ASYNC, [(0, 0)], 0, False),
        (ASYNC, [(0, 0), (1, 0)], 0, True),
        # Where another one has joined there are values.
        (ASYNC, [(0, 2), (1, 2)], 0, True),
        # A bound counts from the start.
        (BOUNDED, [(0, 0), (1, 0)], 1, False),
        (BOUNDED, [(0, 0), (1, 0), (0, 1)], 1, False),
        (BOUNDED, [(0, 1), (1, 1)], 1, True),
        (BOUNDED, [(0, 1), (1, 1)], 0, False),
    ],
)
def test_who_has_not_joined_is_given_up_only_where_nobody_waits_for_it(
    rule: Rule, joined: list[tuple[int, int]], worker: int, goes_on: bool
) -> None:
    assert Started(rule, 0, 2, joined).goes_on_without(worker) == goes_on


def test_a_job_whose_others_would_wait_for_ever_ends_with_a_line_that_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = Started(ASYNC, 0, 2, [])
    first = SimpleNamespace(returncode=None, pid=_NOBODY)

    def poll() -> int:
        first.returncode = 1
        return 1

    first.poll = poll
    run._workers[0].popen = cast(Any, first)
    assert run.watch() == 1
    said = (
        "worker 0 ended with status 1 before it had joined, and the others wait for it; everything was ended"
    )
    assert f"hocket: {said}\n" in capfd.readouterr().err


def test_what_a_failed_worker_has_started_ends_before_its_like_comes() -> None:
    reading, writing = os.pipe()
    # It dies at once; its child would hold the pipe open.
    script = "import subprocess, sys; subprocess.Popen(['sleep', '60'], close_fds=False); sys.exit(1)"
    run = Started(Rule(mode="async", workers=2), 1)
    popen = subprocess.Popen([sys.executable, "-c", script], pass_fds=[writing], start_new_session=True)
    os.close(writing)
    popen.wait(30)
    run._workers[1] = _Process("worker 1", popen, 1, 0)
    assert run.goes_on_without(1)
    assert os.read(reading, 1) == b""  # nobody writes there any more
    os.close(reading)


def finished(script: str, rule: Rule, restarts: int, tmp_path: Path) -> int:
    """The status of a job without servers whose workers run ``script``."""
    (tmp_path / "script.py").write_text(f"import os\nworker, attempt = {_TOLD}\n{script}")
    job = ServedJob(address="127.0.0.1:1", token=TOKEN, rule=rule)
    run = _JobRun(job, "127.0.0.1:2", [str(tmp_path / "script.py")], {}, restarts)
    try:
        run._workers = [run._started(worker, 0) for worker in range(rule.workers)]
        return run.watch()
    finally:
        run.end()


def test_a_job_ends_with_the_status_of_the_script_that_failed(tmp_path: Path) -> None:
    # The others end with 1 as soon as they hear of it, perhaps before the one that failed has ended.
    assert finished("raise SystemExit(3 if worker == '1' else 1)", Rule(workers=2), 0, tmp_path) == 3
    assert finished("os.kill(os.getpid(), 9)", Rule(), 0, tmp_path) == 1
    assert finished("raise SystemExit(0)", Rule(workers=2), 0, tmp_path) == 0
    # One that is given up is no failure of the job.
    assert finished("raise SystemExit(3 * int(worker))", Rule(mode="async", workers=2), 0, tmp_path) == 0


def test_the_last_worker_is_started_again_too(tmp_path: Path) -> None:
    assert finished("raise SystemExit(3 * (attempt == '0'))", Rule(mode="async"), 1, tmp_path) == 0


def test_who_was_killed_is_named_and_not_who_ended_with_an_error_for_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """However late it is seen: then all of them have ended."""
    run = Started(Rule(workers=3), 0)
    run._workers[2].popen = cast(Any, SimpleNamespace(returncode=-9, poll=lambda: -9, pid=_NOBODY))
    first = cast(Any, run._workers[0].popen)
    first.returncode = None

    def poll() -> int:
        first.returncode = 1
        return 1

    first.poll = poll
    run.watch()
    assert "hocket: worker 2 ended with signal SIGKILL; everything was ended" in capfd.readouterr().err


def test_who_was_killed_is_named_though_it_takes_longer_to_be_gone_than_whoever_it_drags_along(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = Started(Rule(workers=3), 0)
    killed = SimpleNamespace(returncode=None, pid=_NOBODY)
    looks = iter([None, None, None])

    def poll() -> int | None:
        killed.returncode = next(looks, -9)
        return killed.returncode

    killed.poll = poll
    run._workers[2].popen = cast(Any, killed)
    run.watch()
    assert "hocket: worker 2 ended with signal SIGKILL; everything was ended" in capfd.readouterr().err
