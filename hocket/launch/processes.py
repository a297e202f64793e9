"""The processes of a job with parameter servers on this machine: started, watched and ended together.

Torchrun ends all workers when one fails, which is not what asynchronous training is for. So workers are
started here, each with the environment that torchrun gives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket.launch.heartbeats import WorkerHeartbeats
from hocket.launch.job import JOB_VARIABLE, ServedJob, split_address
from hocket.launch.join_flags import JoinFlags

_POLL_S = 0.05
_GRACE_S = 10.0  # to end with an error of one's own
_NAMING_S = 1.0
_TERMINATE_S = 5.0

SERVER = ("-m", "hocket.runtime.ps.server.server")
SCRIPT = (str(Path(__file__).with_name("training_script.py")),)
"""The arguments before a script that trains: see :mod:`hocket.launch.training_script`."""


@dataclass
class _Process:
    """One process of a job.

    ``name`` in messages; ``worker``: its number, None for a server; ``awaited``: it failed too early;
    ``silent_s``: for how long it had given no sign of life when it was ended for that.
    """

    name: str
    popen: subprocess.Popen[bytes]
    worker: int | None = None
    attempt: int = 0
    awaited: bool = False
    silent_s: float = 0.0

    @property
    def ended(self) -> str:
        """The way it ended, in words."""
        status = self.popen.returncode
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        if self.silent_s:
            how = f"no sign of life for {self.silent_s:.0f} s"
        return f"{how} before it had joined, and the others wait for it" if self.awaited else how


def worker_environment(job: ServedJob, store: str, worker: int, attempt: int = 0) -> dict[str, str]:
    """The variables of a worker's script beside this process's environment: torchrun's, and the job."""
    host, port = split_address(store)
    told = {
        JOB_VARIABLE: job.for_workers.encoded(),
        "RANK": str(worker),
        "LOCAL_RANK": os.environ.get("LOCAL_RANK", str(worker)),
        "WORLD_SIZE": str(job.rule.workers),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        # Server 0 serves the store that the script's process group meets in.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "HOCKET_ATTEMPT": str(attempt),
    }
    if job.rule.mode != "sync":
        # A worker that comes again finds nobody who waits for it in the script's process group.
        told["TORCH_GLOO_LAZY_INIT"] = "1"
    if job.rule.workers > 1 and "OMP_NUM_THREADS" not in os.environ:
        told["OMP_NUM_THREADS"] = "1"  # as torchrun does
    return told


def server_environment(job: ServedJob, store: str) -> dict[str, str]:
    """The variables of a server beside this process's environment."""
    return {JOB_VARIABLE: job.encoded(), "HOCKET_STORE": store}


def run_job(
    job: ServedJob, listener: socket.socket, command: Sequence[str], told: Mapping[str, str], restarts: int
) -> int:
    """Run the servers of ``job``, the first one at ``listener``, and ``command`` as each worker; the status.

    ``told``: variables for the workers. A worker that gives no sign of life for the job's timeout is ended,
    and has failed. Asynchronous workers that fail are started again, ``restarts`` times each, and afterwards
    the others go on without them; in a synchronous job that has too few left, everybody ends, and so they do
    where one had not joined yet that others wait for.
    """
    with socket.create_server((split_address(job.address)[0], 0)) as store_listener:
        store = "{}:{}".format(*store_listener.getsockname()[:2])
        run = _JobRun(job, store, command, told, restarts)
        try:
            run.start(listener, store_listener)
            listener.close()
            store_listener.close()
            return run.watch()
        finally:
            run.end()


class _JobRun:
    def __init__(
        self, job: ServedJob, store: str, command: Sequence[str], told: Mapping[str, str], restarts: int
    ) -> None:
        self._job, self._store = job, store
        self._command, self._told = list(command), dict(told)
        self._restarts = restarts
        self._servers: list[_Process] = []
        self._workers: list[_Process] = []
        self._given_up = 0
        self._joined = JoinFlags.made(job)
        self._signs = WorkerHeartbeats(job.rule.workers, job.timeout_s)

    def start(self, listener: socket.socket, store_listener: socket.socket) -> None:
        inherited = [listener.fileno(), store_listener.fileno()]
        for index in range(self._job.servers):
            fds = inherited if index == 0 else []
            command = [sys.executable, "-P", *SERVER, str(index), *map(str, fds)]
            environment, fd = self._joined.inheritance()
            environment |= server_environment(self._job, self._store)
            self._servers.append(_Process(f"server {index}", _started(command, environment, [*fds, fd])))
        for worker in range(self._job.rule.workers):
            self._workers.append(self._started(worker, 0))

    def watch(self) -> int:
        """Wait for the workers; 0 where all that had to finish did, else how the one that failed ended."""
        # An end is known by polling alone, so that no failure is passed over.
        while any(worker.popen.returncode is None for worker in self._workers):
            time.sleep(_POLL_S)
            self._end_silent()
            ended = [p for p in [*self._workers, *self._servers] if p.popen.poll() not in (None, 0)]
            # Those that a failure drags along end with 1: who ended otherwise was the first.
            for process in sorted(ended, key=lambda process: process.popen.returncode == 1):
                if not self._goes_on(process):
                    first = self._first(process)
                    self._say(f"{first.name} ended with {first.ended}; everything was ended")
                    self._wait(_GRACE_S)
                    # Those that it drags along end with 1, as scripts do on an error.
                    return max(1, *(worker.popen.returncode or 0 for worker in self._workers))
        return 0

    def _end_silent(self) -> None:
        """End workers, with all that they have started, that have given no sign for too long."""
        for process in self._workers:
            worker, running = process.worker, process.popen.returncode is None
            if worker is not None and running and not process.silent_s:
                process.silent_s = self._signs.silence_s(worker)
                if process.silent_s:
                    _signal_group(process, signal.SIGKILL)  # one that is stopped hears of nothing else

    def _first(self, process: _Process) -> _Process:
        """``process``, which has failed, or who dragged it along: one that is killed may be gone for others,
        whose connections to it end, before it has ended for us.
        """
        running = [p for p in [*self._workers, *self._servers] if p is not process and p.attempt >= 0]
        deadline_s = time.monotonic() + _NAMING_S
        while process.popen.returncode == 1 and time.monotonic() < deadline_s:
            for other in running:
                if other.popen.poll() not in (None, 0, 1):
                    return other
            if all(other.popen.returncode is not None for other in running):
                break
            time.sleep(_POLL_S)
        return process

    def end(self) -> None:
        """End what is still there, with all that it has started."""
        for number, seconds in ((signal.SIGTERM, _TERMINATE_S), (signal.SIGKILL, _TERMINATE_S)):
            for process in [*self._workers, *self._servers]:
                _signal_group(process, number)
            self._wait(seconds, servers=True)
        self._joined.close()
        self._signs.close()

    def _started(self, worker: int, attempt: int) -> _Process:
        environment = {**self._told, **worker_environment(self._job, self._store, worker, attempt)}
        signs, fd = self._signs.begin(worker)
        popen = _started([sys.executable, *SCRIPT, *self._command], environment | signs, [fd])
        return _Process(f"worker {worker}", popen, worker, attempt)

    def _goes_on(self, process: _Process) -> bool:
        """True if the job goes on without ``process``, which has failed, or with one in its place."""
        if process.worker is None:
            return False
        if process.popen.returncode == 0 or process not in self._workers:
            return True
        if process.attempt < 0:
            return True  # given up already
        # Processes that it has started would go on without it.
        _signal_group(process, signal.SIGKILL)
        rule = self._job.rule
        if rule.mode != "sync" and process.attempt < self._restarts:
            self._say(f"{process.name} ended with {process.ended}; it is started again")
            self._workers[process.worker] = self._started(process.worker, process.attempt + 1)
            return True
        spare = rule.backup if rule.mode == "sync" else rule.workers - 1
        if self._given_up >= spare:
            return False
        process.awaited = self._joined.awaits(process.worker)
        if process.awaited:
            return False
        self._given_up += 1
        process.attempt = -1
        self._say(f"{process.name} ended with {process.ended}; the others go on")
        return True

    def _wait(self, seconds: float, *, servers: bool = False) -> None:
        deadline_s = time.monotonic() + seconds
        waited = [*self._workers, *(self._servers if servers else [])]
        while any(process.popen.poll() is None for process in waited) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)

    def _say(self, text: str) -> None:
        print(f"hocket: {text}", file=sys.stderr, flush=True)


def _signal_group(process: _Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.popen.pid, number)


def _started(
    command: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    # A session of its own: what it starts ends with it.
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
