"""A parameter server: needs no user code, only the job, and what worker 0 tells of its model."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import torch
from torch._C._distributed_c10d import TCPStore

from hocket.errors import HocketError
from hocket.launch import ServedJob, job_of_environment
from hocket.launch.control import Connection, Guest, connect, host_towards, refuse, welcome
from hocket.launch.guarded_listener import GuardedListener
from hocket.launch.job import split_address
from hocket.launch.join_flags import JoinFlags
from hocket.runtime.ps.server.core import ServerCore
from hocket.runtime.ps.server.worker_connection import WorkerConnection
from hocket.runtime.ps.wire.transport import TransportError

_FAREWELL_S = 2.0


class ParameterServer:
    """Server ``index`` of ``job``, which listens at ``listener``; ``core``: its state and its answers.

    ``join_flags``: where it is noted who has joined.
    """

    def __init__(
        self, job: ServedJob, index: int, listener: socket.socket, join_flags: JoinFlags | None = None
    ) -> None:
        self.job, self.index = job, index
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self._address = f"{host}:{port}"
        self.core = ServerCore(job, index, self._address, join_flags)
        self.door = GuardedListener(listener, job.credentials, self._admit_guest, self._log)

    def run(self) -> int:
        """Serve until the workers have finished; the exit status."""
        threading.Thread(target=self.door.run, name="hocket-accept", daemon=True).start()
        if self.index:
            guest = Guest("server", self.index, self._address)
            connect(self.job.address, self.job.credentials, guest, self.job.timeout_s).close()
        core = self.core
        with core.condition:
            come = core.condition.wait_for(lambda: bool(core.spec or core.failure), self.job.timeout_s)
            if not come:
                core.failure = f"no worker came within {self.job.timeout_s:g} s"
            lonely_s = time.monotonic()
            while not core.failure and len(core.finished_workers) < self.job.rule.workers:
                core.condition.wait(1.0)
                if core.peers:
                    lonely_s = time.monotonic()
                elif time.monotonic() - lonely_s > self.job.timeout_s:  # none comes again
                    break
            # A worker that was told of a failure hangs up.
            core.condition.wait_for(lambda: not core.peers, _FAREWELL_S)
        core.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # the thread that accepts there sees its end
        if core.failure:
            self._log(core.failure)
        return 1 if core.failure or not core.finished_workers else 0

    def _log(self, what: str) -> None:
        print(f"hocket: server {self.index}: {what}", file=sys.stderr, flush=True)

    def _admit_guest(self, guest: Guest, connection: Connection) -> Callable[[], None] | None:
        """A function that hears a worker, None for a server; TransportError for a guest without a place."""
        core = self.core
        with core.condition:
            if why := self._no_place(guest):
                refuse(connection, why)
                raise TransportError(why)
            if guest.role == "server":
                core.address_of[guest.index] = guest.address
                core.condition.notify_all()
                welcome(connection)
                return None
            welcome(connection)  # a guest that dies before that has never been here
            core.seen_workers.add(guest.index)
            core.peers[guest.index] = peer = WorkerConnection(core, guest.index, connection)
            return peer.run

    def _no_place(self, guest: Guest) -> str:
        """The reason that the guest cannot take part; "" where it can."""
        who = f"{guest.role} {guest.index}"
        if guest.role not in ("worker", "server"):
            return f"{who} has nothing to do with parameter servers"
        if guest.index >= (self.job.rule.workers if guest.role == "worker" else self.job.servers):
            return f"{who} is one too many"
        if guest.role == "worker":
            return f"{who} is here already" if guest.index in self.core.peers else ""
        try:
            split_address(guest.address)
        except HocketError as error:
            return f"{who} is nowhere: {error}"
        return ""


def main(arguments: list[str]) -> int:
    """Serve: ``INDEX [FD STORE_FD]``, sockets that listen already; the job is in the environment."""
    job = job_of_environment()
    if job is None:
        raise HocketError("there is no job in the environment; start servers with hocket train")
    index = int(arguments[0])
    if len(arguments) > 1:
        listener = socket.socket(fileno=int(arguments[1]))
    elif index == 0:
        listener = _listener_at(split_address(job.address))
    else:
        listener = _listener_at((host_towards(job.address), 0))
    torch.set_num_threads(_threads())
    store = _store_of_job(job, arguments[2:]) if index == 0 else None
    status = ParameterServer(job, index, listener, JoinFlags.inherited(job)).run()
    del store
    return status


def _threads() -> int:
    """The first number in OMP_NUM_THREADS, which may give one for each level; what is none is passed over."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, int(first)) if first.isdecimal() else 1


def _listener_at(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        host, port = address
        raise HocketError(
            f"cannot listen at {host}:{port} ({error.strerror or error});"
            " give an address of this machine and a free port in MASTER_ADDR and MASTER_PORT"
        ) from None


def _store_of_job(job: ServedJob, fds: list[str]) -> TCPStore | None:
    """The store that a script's process group meets in, on our own address alone; None: not wanted."""
    address = os.environ.get("HOCKET_STORE")
    if address is None:
        return None
    host, port = split_address(address)
    listening = socket.socket(fileno=int(fds[0])) if fds else _listener_at((host, port))
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())


if __name__ == "__main__":
    faulthandler.enable()  # a crash in compiled code says where
    try:
        status = main(sys.argv[1:])
    except (HocketError, TransportError) as error:
        print(f"hocket: {error}", file=sys.stderr)
        status = 2
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that are inside torch when an interpreter ends abort it.
    os._exit(status)
