"""Faults of a soak: ranks, nodes and managers that are killed or away for a while, each written down."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hocket.cluster.live.manager_messages import Drain, ManagerAnswer
from hocket.lab.links import LabNode, switch_of
from hocket.process_stats import first_environment
from tests.lab.soak.cluster import LOST_AFTER_S, Soaked

_RANK_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
_MANAGER_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_SOON_S = 0.2


@dataclass(frozen=True)
class Span:
    """Something that was so on a node, or of the manager, from when to when, on the machine's clock."""

    node: str
    begin_s: float
    end_s: float


@dataclass
class Log:
    """Faults that were: ``touched``: how often processes of an attempt were killed, by its name; ``away``:
    when nodes were; ``managers``: when none ran; ``drained``: from a command's answer to the next.
    """

    touched: dict[str, int] = field(default_factory=dict)
    away: list[Span] = field(default_factory=list)
    managers: list[Span] = field(default_factory=list)
    drained: list[Span] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        """Count a fault of a kind."""
        self.counts[what] = self.counts.get(what, 0) + 1


class Faults:
    """Does faults to a cluster, one at a time; drawn by ``draw``."""

    def __init__(self, soaked: Soaked, draw: random.Random) -> None:
        self._soaked, self._draw = soaked, draw
        self.log = Log()
        self._away: dict[str, tuple[int, float, float]] = {}  # its namespace's file, since when, until when
        self._drained: dict[str, tuple[float, float]] = {}
        # Times in a day of 24 hours.
        self._kinds: dict[Callable[[], None], int] = {
            self._kill_rank: 140,
            self._crash_node: 12,
            self._cut_node: 18,
            self._end_manager: 24,
            self._pause_manager: 8,
            self._drain_node: 14,
        }

    def schedule(self, length_s: float) -> list[tuple[float, Callable[[], None]]]:
        """The faults of a day of ``length_s``, each with its time in seconds from the start."""
        hours = length_s / 50.0  # as hard for a short soak as for one of 20 minutes
        found = [
            (self._draw.uniform(0.0, length_s), kind)
            for kind, per_day in self._kinds.items()
            for _ in range(max(1, round(per_day * hours / 24)))
        ]
        return sorted(found, key=lambda each: each[0])

    def look(self) -> None:
        """Let nodes come back whose time it is."""
        now_s = time.time()
        for name, (_, _, until_s) in list(self._away.items()):
            if now_s >= until_s:
                self._come_back(name)
        for name, (_, until_s) in list(self._drained.items()):
            if now_s >= until_s:
                self._use_again(name)

    def end(self) -> None:
        """Let all nodes come back, and be used again."""
        for name in list(self._away):
            self._come_back(name)
        deadline_s = time.monotonic() + 60
        while self._drained:
            assert time.monotonic() < deadline_s
            for name in list(self._drained):
                self._use_again(name)

    # Ranks.

    def _kill_rank(self) -> None:
        found = self._soaked.processes()
        if not found:
            return
        pid = self._draw.choice(sorted(found))
        self._kill([pid], self._draw.choice(_RANK_SIGNALS))
        self.log.count("processes of ranks killed")

    def _kill(self, pids: list[int], number: signal.Signals) -> None:
        attempts = set()
        for pid in pids:
            with contextlib.suppress(OSError):
                attempts.add(first_environment(pid).get("HOCKET_GATE_ATTEMPT", ""))
                os.kill(pid, number)
        for attempt in attempts:
            self.log.touched[attempt] = self.log.touched.get(attempt, 0) + 1

    # Nodes.

    def _node(self) -> LabNode | None:
        there = [node for node in self._soaked.lab.nodes if node.name not in self._away]
        # Half of them stay, or little would run.
        return self._draw.choice(there) if len(there) > len(self._soaked.lab.nodes) / 2 else None

    def _crash_node(self) -> None:
        """Its power fails: processes end, and it is back, empty, some seconds later."""
        if (node := self._node()) is None:
            return
        pids = self._soaked.lab.pids()[node.name]
        if self._draw.random() < 0.5:  # the processes' end may be seen before the machine's
            self._kill(pids, signal.SIGKILL)
            time.sleep(self._draw.uniform(0.0, _SOON_S))
            self._go_away(node)
        else:
            self._go_away(node, pids)
        self.log.count("nodes crashed")

    def _cut_node(self) -> None:
        """Nobody reaches it, and its processes go on."""
        if (node := self._node()) is not None:
            self._go_away(node)
            self.log.count("nodes cut off")

    def _go_away(self, node: LabNode, dying: list[int] | None = None) -> None:
        namespace = os.open(f"/run/netns/{node.namespace}", os.O_RDONLY | os.O_CLOEXEC)
        now_s = time.time()
        self._away[node.name] = namespace, now_s, now_s + self._draw.uniform(0.5, 3 * LOST_AFTER_S)
        _ip("-n", switch_of(self._soaked.lab.name), "link", "set", node.name, "down")
        _ip("netns", "delete", node.namespace)
        self._kill(dying or [], signal.SIGKILL)
        # A process may have been about to begin there when its name went.
        if dying is not None:
            self._kill(_pids_of(namespace), signal.SIGKILL)

    def _come_back(self, name: str) -> None:
        namespace, since_s, _ = self._away.pop(name)
        node = self._soaked.lab.node(name)
        path = Path("/run/netns", node.namespace)
        path.touch(mode=0o444)
        subprocess.run(
            ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{namespace}", path],
            check=True,
            pass_fds=[namespace],
            timeout=30,
        )
        _ip("-n", switch_of(self._soaked.lab.name), "link", "set", name, "up")
        os.close(namespace)
        self.log.away.append(Span(name, since_s, time.time()))

    def _drain_node(self) -> None:
        free = [n.name for n in self._soaked.lab.nodes if n.name not in self._drained]
        if len(free) < 3:
            return
        name = self._draw.choice(free)
        if isinstance(self._soaked.ask(Drain(name, True)), ManagerAnswer):
            now_s = time.time()
            self._drained[name] = now_s, now_s + self._draw.uniform(2.0, 15.0)
            self.log.count("nodes drained")

    def _use_again(self, name: str) -> None:
        begin_s, until_s = self._drained[name]
        end_s = time.time()
        if isinstance(self._soaked.ask(Drain(name, False)), ManagerAnswer):
            del self._drained[name]
            self.log.drained.append(Span(name, begin_s, end_s))
        else:  # it may be used again, and may not: it was asked
            self.log.drained.append(Span(name, begin_s, end_s))
            self._drained[name] = 1e12, until_s

    # The manager.

    def _end_manager(self) -> None:
        number, begin_s = self._draw.choice(_MANAGER_SIGNALS), time.time()
        self._soaked.end(number)
        for name in list(self._away):  # a lab has to be whole for the next one
            self._come_back(name)
        self._soaked.start()
        self.log.managers.append(Span("", begin_s, time.time()))
        self.log.count(f"managers ended by {number.name}")

    def _pause_manager(self) -> None:
        begin_s = time.time()
        self._soaked.pause(self._draw.uniform(0.5, 2 * LOST_AFTER_S))
        self.log.managers.append(Span("", begin_s, time.time()))
        self.log.count("managers stopped for a while")


def _pids_of(namespace: int) -> list[int]:
    wanted, found = os.fstat(namespace), []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            status = os.stat(f"/proc/{entry}/ns/net")
            if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.append(int(entry))
    return found


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)
