"""A process that plans for one that trains, and takes what it has loaded for that along when it ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from hocket.ending import kill
from hocket.errors import HocketError
from hocket.graph import OperationRow, ParameterRow, Plan, StepGraph, StepRows, step_from_rows
from hocket.graph.io import step_document, step_from_document
from hocket.network import Network

_REFUSED = 3  # the status with which it ends where there is no such plan
_NOT_ASKED = 4  # and where nobody asked for one
_GLANCE_S = 1.0
_IDLE_S = 600.0  # for so long it keeps in memory what it has loaded
_BEHIND = 5  # how much nicer it is then: a busy processor gives it a quarter of its time, an idle one all
_LOADED, _ASKED = b"l", b"a"
_UNUSED = "scipy.linalg"
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)  # where there is one; a script may have SIGPIPE end it
# It uses one: libraries that it loads would begin others, which have nothing to do.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class PlanRequest:
    """A request for plans of a step: those to try for policy "auto", else that policy's."""

    policy: str
    graph: StepGraph
    network: Network


class _Message(msgspec.Struct):
    """A request as it goes to the process."""

    policy: str
    step: dict[str, Any]
    network: Network


@dataclass(frozen=True)
class MadePlans:
    """Planning that is over: ``made`` are its plans."""

    made: Sequence[Plan]

    def is_over(self) -> bool:
        """True."""
        return True

    def wait(self, limit_s: float) -> None:
        """There is nothing to wait for."""

    def plans(self) -> Sequence[Plan]:
        """The plans that were made."""
        return self.made

    def end(self) -> None:
        """Nothing runs."""


class PlanningProcess:
    """A process that loads what planning needs, and makes the plans of one request; it ends with this object.

    Raises
    ------
    HocketError
        Where none can be started.
    """

    def __init__(self) -> None:
        # It imports what this process imports, from where it does; -P: not from the working directory.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        code = f"from {__name__} import main; main()"
        try:
            ours, theirs = socket.socketpair()
            with theirs, contextlib.ExitStack() as unless_started:
                unless_started.callback(ours.close)
                # Files, as nobody reads a pipe meanwhile.
                self._asked, self._made, self._said = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", code, str(os.getpid()), str(theirs.fileno())],
                    env={**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": path},
                    stdin=self._asked,
                    stdout=self._made,
                    stderr=self._said,
                    pass_fds=[theirs.fileno()],
                    # A terminal's Ctrl-C is for us. Of another session nice would say nothing to ours.
                    process_group=0,
                )
                unless_started.pop_all()
        except OSError as error:
            raise HocketError(
                f"no process can be started to plan in ({error}); give a plan by plan="
            ) from None
        self._process, self._line = process, ours
        self._policy, self._timeout_s, self._deadline_s = "", 0.0, 0.0
        self.end = weakref.finalize(self, _end, process, ours)

    @property
    def has_ended(self) -> bool:
        """True if it makes no plans any more: it has, or nobody asked for any in time, or it failed."""
        return self._process.poll() is not None

    def wait_until_loaded(self, limit_s: float) -> None:
        """Wait until all is loaded or the process has ended, for ``limit_s`` seconds at most."""
        self._hear(limit_s)

    def recede(self) -> None:
        """Have it leave processors to all that is not behind, too: nothing waits for it from now on."""
        if not self.has_ended:
            os.setpriority(
                os.PRIO_PROCESS, self._process.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + _BEHIND, 19)
            )

    def ask(self, request: PlanRequest, timeout_s: float) -> None:
        """Have it make the plans of ``request``, within ``timeout_s`` from now on.

        Raises
        ------
        HocketError
            Where the request cannot be written down.
        """
        self._policy, self._timeout_s = request.policy, timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        step = step_document(request.graph)
        try:
            self._asked.write(msgspec.msgpack.encode(_Message(request.policy, step, request.network)))
            self._asked.seek(0)  # for both of us
        except OSError as error:
            raise HocketError(f"no plan can be asked for ({error}); give a plan by plan=") from None
        with contextlib.suppress(OSError):  # it has ended
            self._line.send(_ASKED, _NO_SIGNAL)

    def is_over(self) -> bool:
        """True once :meth:`plans` waits for nothing."""
        return self.has_ended or time.monotonic() >= self._deadline_s

    def wait(self, limit_s: float) -> None:
        """Wait until it is over, for ``limit_s`` seconds at most."""
        limit_s = min(time.monotonic() + limit_s, self._deadline_s)
        while (left_s := limit_s - time.monotonic()) > 0 and self._hear(left_s):
            pass

    def plans(self) -> list[Plan]:
        """The plans, once they are made.

        Raises
        ------
        HocketError
            Where there is no such plan, or the process fails or does not end in time.
        """
        policy = self._policy
        try:
            status = self._process.wait(max(0.0, self._deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise HocketError(
                f"planning by '{policy}' took longer than timeout_s, {self._timeout_s:g} s; raise that, or"
                " give a plan by plan="
            ) from None
        finally:
            self.end()
        for file in (self._made, self._said):
            file.seek(0)
        if status:
            _raise(policy, status, self._said.read().decode(errors="replace").strip().splitlines())
        return msgspec.msgpack.decode(self._made.read(), type=list[Plan])

    def _hear(self, limit_s: float) -> bool:
        """Tell whether it says within ``limit_s`` that all is loaded; at once False where it has ended."""
        self._line.settimeout(limit_s)
        try:
            return bool(self._line.recv(1))
        except OSError:  # a timeout is one
            return False


def _end(process: subprocess.Popen[bytes], line: socket.socket) -> None:
    kill([process])
    line.close()


def _raise(policy: str, status: int, lines: list[str]) -> NoReturn:
    reason = lines[-1] if lines else f"status {status}"
    if status == _REFUSED:
        raise HocketError(reason)
    ended = f"the process was ended by signal {-status}" if status < 0 else reason
    raise HocketError(f"planning by '{policy}' failed: {ended}; give a plan by plan=")


def main() -> None:
    """Load what planning needs, wait for the request that comes by standard input, and answer it."""
    sender, number = map(int, sys.argv[1:])
    threading.Thread(target=_end_with, args=[sender], daemon=True).start()
    line = socket.socket(fileno=number)
    from hocket.tuner.training_plans import plans_for

    if not _is_asked(line, 0.0):
        rehearse()
        line.send(_LOADED)
        if not _is_asked(line, _IDLE_S):
            sys.exit(_NOT_ASKED)
    message = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Message)
    try:
        plans = plans_for(message.policy, step_from_document(message.step, "the step"), message.network)
    except HocketError as error:
        print(error, file=sys.stderr)
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(msgspec.msgpack.encode(plans))
    sys.stdout.flush()
    os._exit(0)  # whoever waits need not wait until all that was loaded is taken apart


def _is_asked(line: socket.socket, limit_s: float) -> bool:
    """Tell whether a request is there within ``limit_s``, 0: by now; ends it all where nobody is to."""
    line.settimeout(limit_s)
    try:
        if not line.recv(1):
            os._exit(_NOT_ASKED)
    except (TimeoutError, BlockingIOError):
        return False
    return True


def rehearse() -> None:
    """Plan a small step, so that all that planning needs is loaded when a real one comes.

    It clips, as plans are made for such a step as for others, and then in halves.
    """
    from hocket.graph.clipped_step import clipped
    from hocket.tuner.training_plans import plans_to_try

    # numba loads it with its first kernel, for linear algebra in kernels. None of ours has any, and it takes
    # half as long as all the rest.
    sys.modules[_UNUSED] = None  # type: ignore[assignment]
    try:
        plans_to_try(clipped(step_from_rows(_small_step())), Network(bandwidth_bps=1e9, num_workers=2))
    finally:
        del sys.modules[_UNUSED]  # other planners may use it


def _small_step() -> StepRows:
    """A step whose gradients may be completed in more than one order, recorded twice."""
    rows = [
        OperationRow("forward", "forward", [1e-3, 1e-3], [], ["a", "b", "c"], []),
        OperationRow("backward c", "backward", [1e-3, 1e-3], ["forward"], [], ["c"]),
        OperationRow("backward b", "backward", [1e-3, 1e-3], ["forward"], [], ["b"]),
        OperationRow("backward a", "backward", [1e-3, 1e-3], ["backward b", "backward c"], [], ["a"]),
        *(OperationRow(f"update {name}", "update", 1e-4, [], [name], []) for name in "abc"),
    ]
    size = 1 << 20
    parameters = [ParameterRow(name, [size], "float32", 4 * size) for name in "abc"]
    return StepRows(model="small", batch_size=1, device="cpu", parameters=parameters, operations=rows)


def _end_with(parent: int) -> None:
    """End this process once ``parent`` has: nobody wants its plans."""
    while os.getppid() == parent:
        time.sleep(_GLANCE_S)
    os._exit(1)
