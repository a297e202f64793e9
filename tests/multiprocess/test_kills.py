"""A process of a job with parameter servers is killed or stopped while all train: what comes of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.multiprocess.launch import ROOT

SCRIPT = str(ROOT / "tests/multiprocess/kill_case.py")
UNDER_WAY = 10  # steps
TIMEOUT_S = 10
_PATIENCE_S = 100.0
_STEP = re.compile(r"worker (\d) attempt (\d) process (\d+) step (\d+)\n")
_MARK = "HOCKET_TEST_OF_KILLS"

SILENT = r"no sign of life for \d+ s"
LEFT = rf"training stopped: server 1 did not send '.*' within {TIMEOUT_S} s; raise the timeout"
GONE = r"training stopped: server 1 at \S+ is gone \(its connection "


class End(NamedTuple):
    """How a job ends: its status, and lines that it says in any order; ``again``: worker 1 comes again."""

    status: int
    lines: tuple[str, ...]
    again: bool = False


TABLE = {
    ("server", signal.SIGKILL, "sync"): End(
        1, (GONE, "hocket: server 1 ended with signal SIGKILL; everything was ended")
    ),
    ("server", signal.SIGKILL, "async"): End(
        1, (GONE, "hocket: server 1 ended with signal SIGKILL; everything was ended")
    ),
    # A server that is stopped is missed by those that wait for it, and no other one takes its place.
    ("server", signal.SIGSTOP, "sync"): End(
        1, (LEFT, "hocket: .* ended with status 1; everything was ended")
    ),
    ("server", signal.SIGSTOP, "async"): End(
        1,
        (
            LEFT,
            "hocket: worker [01] ended with status 1; it is started again",
            "hocket: .* ended with status 1; everything was ended",
        ),
    ),
    ("worker", signal.SIGKILL, "sync"): End(
        1, ("hocket: worker 1 ended with signal SIGKILL; everything was ended",)
    ),
    ("worker", signal.SIGKILL, "async"): End(
        0, ("hocket: worker 1 ended with signal SIGKILL; it is started again",), again=True
    ),
    # The other one waits for it as long as it may be silent, and may be the first to say so.
    ("worker", signal.SIGSTOP, "sync"): End(
        1, (rf"hocket: (worker 1 ended with {SILENT}|.* ended with status 1); everything was ended",)
    ),
    ("worker", signal.SIGSTOP, "async"): End(
        0, (rf"hocket: worker 1 ended with {SILENT}; it is started again",), again=True
    ),
}


# Either kind of process and of signal; the other rows are in long runs.
EACH_RUN = [("server", signal.SIGKILL, "async"), ("worker", signal.SIGSTOP, "sync")]


class Training:
    """A job that runs, by what its workers print."""

    def __init__(self, process: subprocess.Popen[str], mark: str) -> None:
        self.process, self._mark = process, mark
        self._said: dict[str, list[str]] = {"out": [], "err": []}
        self._readers = [
            threading.Thread(target=self._said[name].extend, args=[stream], daemon=True)
            for name, stream in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def err(self) -> str:
        return "".join(self._said["err"])

    def step(self, worker: int, attempt: int = 0) -> int:
        """The last step that the worker took in that attempt, 0 before its first."""
        return self._last(worker, attempt)[1]

    def number(self, who: str) -> int:
        """The process number of worker 1, or of server 1."""
        if who == "worker":
            return self._last(1, 0)[0]
        found = [
            process
            for process in self.processes()
            if _command(process)[-2:] == [b"hocket.runtime.ps.server.server", b"1"]
        ]
        (number,) = found
        return number

    def processes(self) -> list[int]:
        """All that the job has started and that has not ended, itself included."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"{_MARK}={self._mark}".encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def until(self, due: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not due():
            assert self.process.poll() is None, self.err
            assert time.monotonic() < deadline_s, self.err
            time.sleep(0.05)

    def ended(self) -> int:
        """The status, once it has ended."""
        status = self.process.wait(_PATIENCE_S)
        for reader in self._readers:
            reader.join(_PATIENCE_S)
        return status

    def _last(self, worker: int, attempt: int) -> tuple[int, int]:
        for line in reversed(self._said["out"].copy()):
            form = _STEP.fullmatch(line)
            if form is not None and (int(form[1]), int(form[2])) == (worker, attempt):
                return int(form[3]), int(form[4])
        return 0, 0


def _command(process: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[:-1]
    return []


@contextlib.contextmanager
def training(mode: str, transport: str, servers: int, folder: Path) -> Iterator[Training]:
    """A job with two workers; nothing of it is left behind."""
    mark = uuid.uuid4().hex
    options = ["--architecture", "ps", "--workers", "2", "--timeout", f"{TIMEOUT_S}s"]
    options += ["--servers", str(servers), "--mode", mode, "--transport", transport]
    options += ["--restarts", "1"] if mode == "async" else []
    told = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT), _MARK: mark}
    process = subprocess.Popen(
        [sys.executable, "-m", "hocket", "train", *options, SCRIPT],
        env=os.environ | told,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    job = Training(process, mark)
    try:
        yield job
    finally:
        process.terminate()  # it ends what it has started
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        for left in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["gloo", pytest.param("grpc", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("who", "how", "mode"),
    [pytest.param(*row, marks=[] if row in EACH_RUN else [pytest.mark.long]) for row in TABLE],
)
def test_a_job_ends_or_goes_on_as_the_table_says(
    who: str, how: signal.Signals, mode: str, transport: str, tmp_path: Path
) -> None:
    end = TABLE[who, how, mode]
    with training(mode, transport, 2 if who == "server" else 1, tmp_path) as job:
        job.until(lambda: min(job.step(worker) for worker in (0, 1)) >= UNDER_WAY)
        os.kill(job.number(who), how)
        if end.again:
            job.until(lambda: job.step(1, attempt=1) >= UNDER_WAY)
            before = job.step(0)
            job.until(lambda: job.step(0) >= before + UNDER_WAY)
            (tmp_path / "enough").write_text("")
        status = job.ended()
        assert job.processes() == []
    assert status == end.status, job.err
    for line in end.lines:
        assert re.search(line, job.err), job.err
