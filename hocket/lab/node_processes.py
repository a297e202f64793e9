"""One process a node: started together, watched together, and ended together whatever happens.

Processes that a rank starts belong to the run too, wherever they go: launchers put workers into sessions of
their own. All of them inherit an environment variable that no other process has, and are found by it.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from hocket.ending import TERMINATE, Steps, end_processes
from hocket.errors import HocketError
from hocket.lab.links import LabNode
from hocket.process_stats import all_pids, first_environment

_MARK = "HOCKET_LAB_RUN"
_POLL_S = 0.1
_CHUNK_BYTES = 2**20  # no pipe holds more unless root made it larger

Start = Callable[[LabNode, Mapping[str, str]], subprocess.Popen[bytes]]


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """The end of the rank on ``node``, ``duration_s`` after the first rank's start.

    ``returncode`` is negative for a rank that a signal ended. ``stdout`` and ``stderr`` are what it printed,
    and empty where that was passed on as it came.
    """

    node: LabNode
    returncode: int
    duration_s: float
    stdout: str
    stderr: str


def run_ranks(
    nodes: Sequence[LabNode], start: Start, *, timeout_s: float | None, grace_s: float, streamed: bool
) -> tuple[RankResult, ...]:
    """Run a rank on each node until all have ended, and whatever they started with them.

    ``start(node, environment)`` starts one: in a session of its own, its output going to pipes, with these
    additions to its environment. Once a rank fails, the others have ``grace_s`` to end with an error of their
    own, then get SIGTERM, and SIGKILL 5 s later. An interrupt of this process (Ctrl-C, SIGTERM as SystemExit)
    is forwarded to the ranks and raised again once they have ended; a second interrupt kills them (under
    ``hocket``, one that comes at least a second later: see :mod:`hocket.signals`).

    Raises
    ------
    HocketError
        When ranks have not ended after ``timeout_s`` (they have when it is raised), and when a process does
        not even end on SIGKILL.
    """
    with selectors.DefaultSelector() as selector:
        run = _NodeRun(selector, streamed)
        try:
            try:
                run.start(nodes, start)
                late = run.watch(timeout_s, grace_s)
            except BaseException as interrupt:
                # It may have cut a start short: such a process has our mark only once it runs its command.
                time.sleep(_POLL_S)
                run.end(((_forwarded(interrupt), grace_s), *TERMINATE))
                raise
        except BaseException:
            run.end(TERMINATE[-1:])
            raise
        finally:
            run.close()
    if late:
        raise HocketError(
            f"{', '.join(late)} had not ended after {timeout_s:g} s and were ended; raise the timeout"
        )
    return run.results()


def _forwarded(interrupt: BaseException) -> signal.Signals:
    ctrl_c = isinstance(interrupt, KeyboardInterrupt) or (
        isinstance(interrupt, SystemExit) and interrupt.code == 128 + signal.SIGINT
    )
    return signal.SIGINT if ctrl_c else signal.SIGTERM


class _Printer:
    """Lines of several ranks on one of our streams, each whole and behind its node's name."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def print(self, node: LabNode, lines: Iterable[bytearray]) -> None:
        if self._stream is None:
            return
        named = (f"[{node.name}] {line.decode(self._encoding, 'backslashreplace')}\n" for line in lines)
        try:
            print("".join(named), end="", file=self._stream, flush=True)
        except OSError:
            self._stream = None  # its reader has left; what ranks say while they are ended goes nowhere
            raise


class _Output:
    """The text that a rank writes to one stream: kept, or passed on line by line."""

    def __init__(self, node: LabNode, printer: _Printer | None) -> None:
        self._node = node
        self._printer = printer
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        self._held += data
        if self._printer is not None and b"\n" in data:
            *lines, self._held = self._held.split(b"\n")
            self._printer.print(self._node, lines)

    def end(self) -> None:
        if self._printer is not None and self._held:
            self._printer.print(self._node, [self._held])

    def text(self) -> str:
        return "" if self._printer is not None else self._held.decode(errors="replace")


@dataclass(kw_only=True)
class _NodeRank:
    node: LabNode
    process: subprocess.Popen[bytes]
    stdout: _Output
    stderr: _Output
    duration_s: float | None = None


class _NodeRun:
    """The ranks of one run, and what they print."""

    def __init__(self, selector: selectors.BaseSelector, streamed: bool) -> None:
        self._selector = selector
        self._printers = (_Printer(sys.stdout), _Printer(sys.stderr)) if streamed else (None, None)
        self._mark = uuid.uuid4().hex
        self._ranks: list[_NodeRank] = []
        self._began_s = time.monotonic()

    def start(self, nodes: Sequence[LabNode], start: Start) -> None:
        for node in nodes:
            process = start(node, {_MARK: self._mark})
            out, err = (_Output(node, printer) for printer in self._printers)
            self._ranks.append(_NodeRank(node=node, process=process, stdout=out, stderr=err))
            for stream, output in ((process.stdout, out), (process.stderr, err)):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ, output)

    def watch(self, timeout_s: float | None, grace_s: float) -> list[str]:
        """Wait for the ranks and end what has to be; the nodes whose ranks ran out of time."""
        end_s = math.inf if timeout_s is None else self._began_s + timeout_s
        failed = False
        while running := [rank.node.name for rank in self._ranks if rank.duration_s is None]:
            if time.monotonic() > end_s:
                break
            self._wait()
            if not failed and any(rank.process.returncode for rank in self._ranks):
                failed = True
                end_s = min(end_s, time.monotonic() + grace_s)
        # Of the ranks, or of what those that have ended left behind.
        self.end(TERMINATE)
        return [] if failed else running

    def end(self, steps: Steps) -> None:
        end_processes(self._processes, steps, self._wait)

    def close(self) -> None:
        # A process that got away from the run may hold a pipe open for ever: take what is there.
        for key in list(self._selector.get_map().values()):
            self._read(key)
        for key in list(self._selector.get_map().values()):
            self._forget(key)

    def results(self) -> tuple[RankResult, ...]:
        results = []
        for rank in self._ranks:
            assert rank.duration_s is not None
            results.append(
                RankResult(
                    node=rank.node,
                    returncode=rank.process.returncode,
                    duration_s=rank.duration_s,
                    stdout=rank.stdout.text(),
                    stderr=rank.stderr.text(),
                )
            )
        return tuple(results)

    def _wait(self) -> None:
        """Take what ranks print, for a moment, and see which have ended."""
        for key, _ in self._selector.select(_POLL_S):
            self._read(key)
        for rank in self._ranks:
            if rank.duration_s is None and rank.process.poll() is not None:
                rank.duration_s = time.monotonic() - self._began_s

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(key.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            key.data.write(data)
        else:
            self._forget(key)

    def _forget(self, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]
        key.data.end()

    def _processes(self) -> list[int]:
        """The ranks that have not ended, what is in their sessions, and what they started elsewhere."""
        sessions = {rank.process.pid for rank in self._ranks if rank.duration_s is None}
        found = []
        for pid in all_pids():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.getsid(pid) in sessions or first_environment(pid).get(_MARK) == self._mark:
                    found.append(pid)
        return found
