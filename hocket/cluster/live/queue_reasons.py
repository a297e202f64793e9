"""Reasons why jobs queue: the room that each waits for, who has it, and who is before it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from hocket.cluster.engine.gpu_types import service_on
from hocket.cluster.engine.records import EXCLUDED, NEVER, SUBMITTED, Ints
from hocket.cluster.engine.users import quota_name
from hocket.cluster.jobs import Job
from hocket.cluster.live.context import ManagerContext
from hocket.cluster.live.engine_rows import TICK_S
from hocket.cluster.live.job_progress import JobProgress
from hocket.cluster.live.job_record import Record, wanted_text
from hocket.cluster.live.reason_names import MOST_NAMED, ClusterNames, named
from hocket.text import counted, duration_text, listed, scaled_text

Bools = npt.NDArray[np.bool_]


class QueueReasons:
    """Reasons for which jobs queue, at one instant, ``now_s``."""

    def __init__(self, context: ManagerContext, names: ClusterNames, now_s: float) -> None:
        self._context, self._names, self._now_s = context, names, now_s
        driver = context.driver
        self._free: Ints = np.zeros(0, np.int64)
        self._queue: list[int] = []
        if not driver.empty:
            self._free = driver.state.gpus["free"].copy()
            self._queue = driver.queue(now_s)
        self._ahead = {row: place for place, row in enumerate(self._queue)}
        self._room: dict[tuple[int, int], str] = {}

    def of(self, record: Record, progress: JobProgress) -> str:
        """The reason for which a job queues."""
        row = self._context.driver.state.jobs[progress.row]
        if row["stage"] == SUBMITTED:
            if (again_s := self._context.tried_again_s.get(record.job.id)) is not None:
                return f"is tried again in {max(1, math.ceil(again_s - self._now_s))} s"
            if record.attempt:
                return "is tried again in a moment"
            return f"arrives in {duration_text(max(0.0, record.arrival_s - self._now_s))}"
        user = self._context.driver.state.users[row["user"]]
        if user["held"] + record.job.fewest_gpus > user["quota"]:
            held = f"{user['held']} of {user['quota']} GPUs held"
            return f"waits for {quota_name(record.job.user)}: {held}, it wants {wanted_text(record.job)}"
        need = int(self._context.driver.state.sites.class_memory[row["memory_class"]])
        types = int(row["types"])
        free = {k: int((self._open_to(1 << k) & (self._free >= need)).sum()) for k in _bits(types)}
        faster = self._faster_types(progress.row, record.job, free)
        line = self._lack(record.job, need, faster or types)
        if faster:
            slower = {k: num for k, num in free.items() if num and not faster >> k & 1}
            there = [f"{num} of {self._context.cluster.types[k].name}" for k, num in slower.items()]
            line += f"; {listed(there)} {'is' if sum(slower.values()) == 1 else 'are'} free, and slower"
        elif max(free.values()) >= record.job.fewest_gpus:
            line += self._kept_free(progress.row)
        elif sum(free.values()) >= record.job.fewest_gpus:
            line += "; no type has enough of them"
        return line + self._behind(progress.row)

    def _open_to(self, types: int) -> Bools:
        """True of each GPU that is of one of ``types``, a bit each."""
        found: Bools = types >> self._context.driver.state.gpus["type"] & 1 == 1
        return found

    def _faster_types(self, j: int, job: Job, free: Mapping[int, int]) -> int:
        """The types of GPUs, a bit each, that a job may wait for; 0 unless enough of a slower one are free.

        ``free``: of each type how many have room for it.
        """
        driver = self._context.driver
        service = {kind: service_on(driver.state.jobs, driver.state.sites, j, kind) for kind in free}
        enough = [service[kind] for kind, num in free.items() if num >= job.fewest_gpus]
        if not (driver.rules.wait_for_faster and enough):
            return 0
        return sum(1 << kind for kind in free if service[kind] < min(enough))

    def _kept_free(self, row: int) -> str:
        """The reason for which a job that would fit is not placed."""
        driver = self._context.driver
        if driver.placement_waits:
            return "; the free ones are not in one block of servers"
        if driver.rules.starvation == NEVER:
            return ""
        if not (num := self._starving.get(row, len(self._starving))):
            return ""
        have = "has" if num == 1 else "have"
        since = duration_text(driver.rules.starvation * TICK_S)
        names = named([self._name_of(other) for other in islice(self._starving, MOST_NAMED)], num)
        return f"; the free ones are held for {names}, which {have} queued for {since} or longer"

    @cached_property
    def _starving(self) -> dict[int, int]:
        """The rows of jobs that have queued for so long that GPUs are held for them, each with its place."""
        return {row: place for place, row in enumerate(self._context.driver.starving(self._now_s))}

    def _lack(self, job: Job, need: int, types: int) -> str:
        """The room that a job waits for, on GPUs of one of ``types``, with so much memory."""
        if (line := self._room.get((need, types))) is None:
            line = self._room[need, types] = self._room_for(need, types)
        there = self._context.cluster.types
        names = [there[kind].name for kind in _bits(types)]
        of = f" of {listed(names, 'or')}" if len(there) > 1 else ""
        return f"waits for {wanted_text(job)} GPU{'' if job.gpus == 1 else 's'}{of}{line}"

    def _room_for(self, need: int, types: int) -> str:
        driver = self._context.driver
        open_ = (driver.withheld < EXCLUDED) & self._open_to(types)
        fits = np.flatnonzero(self._open_to(types) & (self._free >= need))
        short = np.flatnonzero(open_ & (self._free < need))
        where = f" on {self._names.nodes_of(fits)}" if len(fits) else ""
        line = f"; {len(fits)} {'is' if len(fits) == 1 else 'are'} free{where}"
        some = short[self._free[short] > 0]
        if len(some):
            best = int(some[np.argmax(self._free[some])])
            have = "has" if len(fits) == 1 else "have"
            beside = self._names.residents([best])
            full = [job for job in self._names.residents(short.tolist()) if job not in beside]
            line = (
                f" with {scaled_text(need, 'B')} of memory each; {len(fits)} {have} it{where}, "
                f"{self._names.gpu(best)} has {scaled_text(int(self._free[best]), 'B')} beside "
                f"{named(beside)}"
            )
            line += f"; {named(full)} {'has' if len(full) == 1 else 'have'} the others" if full else ""
        elif len(short):
            there = self._names.residents(short.tolist())
            line += f"; {named(there)} {'has' if len(there) == 1 else 'have'} the others"
        return line + self._closed()

    def _closed(self) -> str:
        context = self._context
        drained = sorted(context.drained_nodes)
        silent = sorted(context.silent_nodes)
        line = f"; {listed(drained)} {'is' if len(drained) == 1 else 'are'} drained" if drained else ""
        return line + (
            f"; {listed(silent)} {'does' if len(silent) == 1 else 'do'} not answer" if silent else ""
        )

    def _behind(self, row: int) -> str:
        place = self._ahead.get(row, 0)
        if not place:
            return ""
        name = self._name_of(self._queue[place - 1])
        return f"; behind {name}" + (f" and {counted(place - 1, 'other')}" if place > 1 else "")

    def _name_of(self, row: int) -> str:
        progress = self._context.driver.by_row[row]
        return "another job" if progress is None else progress.job.id


def _bits(types: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [kind for kind in range(types.bit_length()) if types >> kind & 1]
