"""Outages: times in which a server of a simulated cluster is down, because it failed or is maintained."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.records import Floats, Ints
from hocket.errors import HocketError
from hocket.text import counted

_LONGEST_S = 1e9
_SAME = 1 + 1e-9
CHECKPOINT_EVERY_S = 1800.0


class Maintenance(NamedTuple):
    """A time in which a server is down, in seconds of the job set's clock."""

    server: int
    from_s: float
    to_s: float


class OutageEvent(NamedTuple):
    """The beginning of a server's outage, or its end if not ``begins``."""

    at_s: float
    server: int
    begins: bool


@dataclass(frozen=True, kw_only=True)
class Outages:
    """The outages of a run, and what jobs keep of their work.

    Attributes
    ----------
    mtbf_s : seconds from a server's beginning, or its last repair, to its next failure: the mean of an
        exponential distribution, each server its own stream of it; None: none fails.
    repair_s : seconds that a repair takes, likewise.
    maintenance : when servers are down beside that. Jobs are not told in advance.
    checkpoint_every_s : a job keeps its work whenever it has computed for so long, in whole iterations, at
        least one; that takes no time. None: it never does, and begins anew.
    seed : decides when servers fail.
    """

    mtbf_s: float | None = None
    repair_s: float = 0.0
    maintenance: tuple[Maintenance, ...] = ()
    checkpoint_every_s: float | None = CHECKPOINT_EVERY_S
    seed: int = 0

    def check(self, num_servers: int) -> None:
        """Refuse numbers out of range and servers that the cluster does not have; raises HocketError."""
        for value, what in (
            (self.mtbf_s, "between failures"),
            (self.repair_s if self.mtbf_s is not None else None, "of repair"),
            (self.checkpoint_every_s, "between checkpoints"),
        ):
            if value is not None and not 0.0 < value <= _LONGEST_S:
                raise HocketError(f"{value!r} s {what}: give seconds above 0 and up to 1e9, e.g. 3600")
        for window in self.maintenance:
            if not 0 <= window.server < num_servers:
                raise HocketError(
                    f"maintenance of server {window.server}: the cluster has "
                    f"{counted(num_servers, 'server')}, 0 to {num_servers - 1}; name one of them"
                )
            if not 0.0 <= window.from_s < window.to_s <= _LONGEST_S:
                raise HocketError(
                    f"maintenance from {window.from_s:g} s to {window.to_s:g} s: it begins at 0 or later, and"
                    " ends after that, within 1e9 s"
                )

    def events(self, num_servers: int) -> Iterator[OutageEvent]:
        """The beginnings and ends of all outages in order; without end if servers fail."""
        windows = [
            event
            for server, from_s, to_s in self.maintenance
            for event in (OutageEvent(from_s, server, True), OutageEvent(to_s, server, False))
        ]
        streams: list[Iterator[OutageEvent]] = [iter(sorted(windows))]
        if self.mtbf_s is not None:
            streams += [self._failures(server, self.mtbf_s) for server in range(num_servers)]
        return heapq.merge(*streams)

    def _failures(self, server: int, mtbf_s: float) -> Iterator[OutageEvent]:
        drawn = np.random.default_rng([self.seed, server])
        at_s = 0.0
        while True:
            at_s += drawn.exponential(mtbf_s)
            yield OutageEvent(at_s, server, True)
            at_s += drawn.exponential(self.repair_s)
            yield OutageEvent(at_s, server, False)

    def iterations_between(self, computing_s: float) -> int:
        """The iterations after which a job keeps its work that computes so long in each; 0: it never does."""
        if self.checkpoint_every_s is None:
            return 0
        # Three iterations of 0.1 s are 0.3 s, though not in floats.
        return max(1, int(self.checkpoint_every_s / computing_s * _SAME))


@dataclass(frozen=True, kw_only=True, eq=False)
class OutageToll:
    """The toll that outages took of a run.

    Attributes
    ----------
    outages : those that the run had.
    went_down : times that a server did before the last job's end.
    interruptions : (J,) times that a job lost its GPUs to that.
    lost_s : (J,) seconds on its GPUs that came to nothing: computing that was not kept, of iterations and of
        the one under way, and what that one waited for its GPUs.
    lost_gpu_s : (J,) the same of all its GPUs.
    """

    outages: Outages
    went_down: int
    interruptions: Ints
    lost_s: Floats
    lost_gpu_s: Floats
