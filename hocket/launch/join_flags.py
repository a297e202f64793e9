"""Flags of workers that have joined servers: a file without a name that servers share with their launcher.

A worker that fails can be done without only where the others do not wait for what it has not brought yet.
"""

from __future__ import annotations

import os
import tempfile

from hocket.launch.job import ServedJob

_FILE_VARIABLE = "HOCKET_JOINED"


class JoinFlags:
    """Of ``job``, in file ``fd``: a byte for each server and worker; nobody waits to write or read it."""

    def __init__(self, job: ServedJob, fd: int) -> None:
        self._job, self._fd = job, fd

    @classmethod
    def made(cls, job: ServedJob) -> JoinFlags:
        """The launcher's; nobody has joined."""
        with tempfile.TemporaryFile() as file:
            file.write(bytes(job.servers * job.rule.workers))  # no room is missed later
            return cls(job, os.dup(file.fileno()))

    @classmethod
    def inherited(cls, job: ServedJob) -> JoinFlags | None:
        """A server's, as its environment says; None where no launcher asks."""
        fd = os.environ.get(_FILE_VARIABLE)
        return None if fd is None else cls(job, int(fd))

    def inheritance(self) -> tuple[dict[str, str], int]:
        """The environment variables and the file that a server is given."""
        return {_FILE_VARIABLE: str(self._fd)}, self._fd

    def close(self) -> None:
        """It is not asked any more."""
        os.close(self._fd)

    def note(self, server: int, worker: int) -> None:
        """``worker`` has joined ``server``, which has values."""
        os.pwrite(self._fd, b"\1", self._place(server, worker))

    def awaits(self, worker: int) -> bool:
        """True if others wait for ever if ``worker`` never comes again: for the values, or in a bound."""
        servers = range(self._job.servers)
        if self._job.rule.staleness is not None:
            return not all(self._has(server, worker) for server in servers)
        workers = range(self._job.rule.workers)
        return worker == 0 and not all(any(self._has(server, w) for w in workers) for server in servers)

    def _has(self, server: int, worker: int) -> bool:
        return os.pread(self._fd, 1, self._place(server, worker)) == b"\1"

    def _place(self, server: int, worker: int) -> int:
        return server * self._job.rule.workers + worker
