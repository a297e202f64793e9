"""A process that plans for one that trains, and takes what it has loaded for that along when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
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


def plans_of_process(request: PlanRequest, timeout_s: float) -> list[Plan]:
    """The plans of ``request``, made in a process of their own.

    Raises
    ------
    HocketError
        Where there is no such plan, or the process fails or does not end within ``timeout_s``.
    """
    step = step_document(request.graph)
    message = msgspec.msgpack.encode(_Message(os.getpid(), request.policy, step, request.network))
    # It imports what this process imports, from where it does; -P: not from the working directory.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for us
        )
    except OSError as error:
        raise HocketError(f"no process can be started to plan in ({error}); give a plan by plan=") from None
    try:
        made, said = process.communicate(message, timeout_s)
    except subprocess.TimeoutExpired:
        raise HocketError(
            f"planning by '{request.policy}' took longer than timeout_s, {timeout_s:g} s; raise that, or give"
            " a plan by plan="
        ) from None
    finally:
        kill([process])
    if process.returncode:
        _raise(request.policy, process.returncode, said.decode(errors="replace").strip().splitlines())
    return msgspec.msgpack.decode(made, type=list[Plan])


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
