"""A process that plans for one that trains, and takes what it has loaded for that along when it ends."""

from __future__ import annotations

import os
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
from hocket.graph import Plan, StepGraph
from hocket.graph.io import step_document, step_from_document
from hocket.network import Network

_REFUSED = 3  # the status with which it ends where there is no such plan
_GLANCE_S = 1.0
_BEHIND = 5  # how nice it is in the background: a busy processor gives it a quarter of its time, an idle all


@dataclass(frozen=True)
class PlanRequest:
    """A request for plans of a step: those to try for policy "auto", else that policy's."""

    policy: str
    graph: StepGraph
    network: Network


class _Message(msgspec.Struct):
    """A request as it goes to the process, and who sends it."""

    sender: int
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

    def plans(self) -> Sequence[Plan]:
        """The plans that were made."""
        return self.made

    def end(self) -> None:
        """Nothing runs."""


class PlanningProcess:
    """A process that makes the plans of ``request``, within ``timeout_s``; it ends with this object.

    ``in_background``: it leaves processors to all that is not, as nothing waits for it.

    Raises
    ------
    HocketError
        Where none can be started.
    """

    def __init__(self, request: PlanRequest, timeout_s: float, *, in_background: bool = False) -> None:
        self._request, self._timeout_s = request, timeout_s
        step = step_document(request.graph)
        message = msgspec.msgpack.encode(_Message(os.getpid(), request.policy, step, request.network))
        # It imports what this process imports, from where it does; -P: not from the working directory.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        behind = f"import os; os.nice({_BEHIND}); " if in_background else ""
        try:
            # Files, as nobody reads a pipe meanwhile.
            asked, self._made, self._said = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115
            with asked:
                asked.write(message)
                asked.seek(0)
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", f"{behind}from {__name__} import main; main()"],
                    env={**os.environ, "PYTHONPATH": path},
                    stdin=asked,
                    stdout=self._made,
                    stderr=self._said,
                    # A terminal's Ctrl-C is for us. Of another session nice would say nothing to ours.
                    process_group=0,
                )
        except OSError as error:
            raise HocketError(
                f"no process can be started to plan in ({error}); give a plan by plan="
            ) from None
        self._process = process
        self._deadline_s = time.monotonic() + timeout_s
        self.end = weakref.finalize(self, kill, [process])

    def is_over(self) -> bool:
        """True once :meth:`plans` waits for nothing."""
        return self._process.poll() is not None or time.monotonic() >= self._deadline_s

    def plans(self) -> list[Plan]:
        """The plans, once they are made.

        Raises
        ------
        HocketError
            Where there is no such plan, or the process fails or does not end in time.
        """
        policy = self._request.policy
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


def _raise(policy: str, status: int, lines: list[str]) -> NoReturn:
    reason = lines[-1] if lines else f"status {status}"
    if status == _REFUSED:
        raise HocketError(reason)
    ended = f"the process was ended by signal {-status}" if status < 0 else reason
    raise HocketError(f"planning by '{policy}' failed: {ended}; give a plan by plan=")


def main() -> None:
    """Answer the request that comes by standard input."""
    message = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Message)
    threading.Thread(target=_end_with, args=[message.sender], daemon=True).start()
    from hocket.tuner.training_plans import plans_for

    try:
        plans = plans_for(message.policy, step_from_document(message.step, "the step"), message.network)
    except HocketError as error:
        print(error, file=sys.stderr)
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(msgspec.msgpack.encode(plans))


def _end_with(parent: int) -> None:
    """End this process once ``parent`` has: nobody wants its plans."""
    while os.getppid() == parent:
        time.sleep(_GLANCE_S)
    os._exit(1)
