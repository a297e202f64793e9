"""Traces of made-up jobs under FSDP2: known units, network and prefetch, played out stream by stream.

The host runs far ahead. All-gathers and reduce-scatters go one by one, as on one communicator; a unit's
copies into place wait for its all-gather, an all-gather in the forward pass waits for the copies of the unit
before the last, in the backward pass for the last copies. Behind a unit's backward pass its gradients are
copied together, which waits for the reduce-scatter before, and scattered. The optimizer waits for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.interop.traces import ACCUMULATE, ENGINE, MAIN, NODE, Kineto

_GATHERING, _SCATTERING = 21, 22
_ITEM = {"Float": 4, "BFloat16": 2}


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit of a few linear layers, one parameter each, of these shapes; times in microseconds."""

    name: str
    shapes: Sequence[tuple[int, ...]]
    forward_us: float = 300.0
    backward_us: float = 600.0
    reshards: bool = True
    frozen: int = 0
    """Elements that are gathered and not trained; a multiple of the ranks."""


@dataclass(frozen=True, kw_only=True)
class ShardedJob:
    """A job of units in a row, the first of which is the root's, with an embedding first and a head last.

    ``ahead``: how many units each prefetch list names; None: as torch gathers by itself.
    """

    units: Sequence[Unit]
    ranks: int
    a_us: float
    b_us_per_byte: float
    steps: int = 5
    ahead: int | None = None
    gathered_as: str = "Float"
    scattered_as: str = "Float"
    update_us: float = 120.0
    copy_us: float = 4.0
    shapes: bool = True

    def padded(self, unit: Unit) -> int:
        return sum(-(-s[0] // self.ranks) * self.ranks * math.prod(s[1:]) for s in unit.shapes)

    def gathered(self, unit: Unit) -> int:
        return self.padded(unit) + unit.frozen

    def traces(self) -> tuple[list[Kineto], float]:
        """Each rank's trace, and the microseconds of a step, from the first one's end to the last one's."""
        ranks = [_Rank(self, Kineto(rank)) for rank in range(self.ranks)]
        ends = []
        for step in range(self.steps):
            for rank in ranks:
                rank.plan(step)
            self._exchange(ranks)
            ends.append(max(rank.finish() for rank in ranks))
        return [rank.trace for rank in ranks], (ends[-1] - ends[0]) / (self.steps - 1)

    def _exchange(self, ranks: list[_Rank]) -> None:
        """Play out a step: all ranks have the same program, and each collective begins on all at once."""
        while not all(rank.done for rank in ranks):
            for rank in ranks:
                rank.run_until_collective()
            issued = [rank.issued() for rank in ranks]
            if issued[0] is None:
                continue
            begins = [begin for begin, _ in issued if begin is not None]  # type: ignore[misc]
            end = max(begins) + self.a_us + self.b_us_per_byte * ranks[0].message_bytes()
            for rank, begin in zip(ranks, begins, strict=True):
                rank.collective(begin, end)


@dataclass
class _Task:
    """What the device does: ``kind`` compute, copy_out, copy_in, gather or scatter, for a unit."""

    kind: str
    unit: Unit
    us: float = 0.0
    at: float = 0.0
    thread: int = MAIN
    again: bool = False
    names: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass
class _Rank:
    """One rank: its host's calls in order, and what its streams have come to."""

    job: ShardedJob
    trace: Kineto
    host: float = 1e6
    computed: float = 1e6
    free: float = 0.0
    tasks: list[_Task] = field(default_factory=list)
    gathered: dict[str, float] = field(default_factory=dict)
    copies: list[float] = field(default_factory=list)
    scattered: float = 0.0
    allowed: float = 0.0
    pending: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    numbers_of: dict[tuple[str, int], int] = field(default_factory=dict)
    sequence: int = 0
    step: int = 0
    begin: float = 0.0
    done: bool = False

    def plan(self, step: int) -> None:
        """The host's calls of a step, each a task with the time of its launch."""
        self.step, self.begin = step, self.host
        self.tasks, self.full, self.copies, self.done = [], set(), [], False
        self.scattered = self.allowed = 0.0
        job, (root, *blocks) = self.job, self.job.units
        self.sequence = 0
        self._pre("pre_forward", root, MAIN)
        self._layers(root, 0, 1)
        for k, unit in enumerate(blocks):
            self._pre("pre_forward", unit, MAIN)
            for target in blocks[k + 1 : k + 1 + (job.ahead or 0)]:
                self._ahead("forward", target, MAIN)
            self._layers(unit, 0, len(unit.shapes))
            self._mark("post_forward", unit, MAIN)
            if unit.reshards:
                self.full.discard(unit.name)
        self._layers(root, 1, len(root.shapes))
        self._mark("post_forward", root, MAIN)
        self._backward(root, blocks)
        self.host += 5
        self.done = not self.tasks

    def _backward(self, root: Unit, blocks: Sequence[Unit]) -> None:
        job = self.job
        order = [root, *blocks]
        with_default = job.ahead is None
        begun = self.host
        if with_default and blocks:
            self._ahead("backward", blocks[-1], ENGINE)
        self._close("FSDP::pre_backward", begun, ENGINE)
        self._gradients(root, range(1, len(root.shapes)))
        for k in reversed(range(len(blocks))):
            unit = blocks[k]
            self._pre("pre_backward", unit, ENGINE, ahead=blocks[k - 1] if with_default and k else None)
            for target in reversed(blocks[max(0, k - (job.ahead or 0)) : k]):
                self._ahead("backward", target, ENGINE)
            self._gradients(unit, range(len(unit.shapes)))
            self._scatter(unit, ENGINE)
            self.full.discard(unit.name)
        self._gradients(order[0], range(1))
        begun = self.host
        self._scatter(root, MAIN)
        self._close("FSDP::root_post_backward_callback", begun, MAIN)

    def _mark(self, what: str, unit: Unit, thread: int) -> None:
        self._close(_name(what, unit), self.host, thread)

    def _close(self, name: str, begun: float, thread: int) -> None:
        self.host += 1
        self.trace.host(name, begun, self.host, thread, cat="user_annotation")
        self.host += 0.5

    def _pre(self, what: str, unit: Unit, thread: int, ahead: Unit | None = None) -> None:
        begun = self.host
        self.host += 0.5
        self._gather(unit, thread)
        if unit.name in self.pending:
            self.pending.discard(unit.name)
            inner = self.host
            self.host += 0.5
            self._task("copy_out", unit, self.job.copy_us, thread)
            self._close(_name("all_gather_copy_out", unit), inner, thread)
        self.full.add(unit.name)
        if ahead is not None:
            self._ahead("backward", ahead, thread)
        self._close(_name(what, unit), begun, thread)

    def _ahead(self, which: str, unit: Unit, thread: int) -> None:
        begun = self.host
        self.host += 0.5
        self._gather(unit, thread)
        self._close(f"FSDP::{which}_prefetch for {unit.name}", begun, thread)

    def _gather(self, unit: Unit, thread: int) -> None:
        if unit.name in self.full or unit.name in self.pending:
            return
        begun = self.host
        self.host += 0.5
        self.pending.add(unit.name)
        self._task("gather", unit, 0.0, thread)
        self._close(_name("all_gather", unit), begun, thread)

    def _scatter(self, unit: Unit, thread: int) -> None:
        begun = self.host
        self.host += 0.5
        self._task("copy_in", unit, self.job.copy_us, thread)
        self._task("scatter", unit, 0.0, thread)
        self._close(_name("post_backward_reduce", unit), begun, thread)

    def _task(self, kind: str, unit: Unit, us: float, thread: int) -> None:
        self.tasks.append(_Task(kind, unit, us, self.host, thread, thread == ENGINE))
        self.host += 3

    def _layers(self, unit: Unit, first: int, last: int) -> None:
        for i in range(first, last):
            dims: dict[str, Any] = {"Input Dims": [[32, 64]], "Input type": ["float"]}
            args = {"Sequence number": self.sequence, **(dims if self.job.shapes else {})}
            self.numbers_of[unit.name, i] = self.sequence
            self.trace.host("aten::linear", self.host, self.host + 4, **args)
            self._task("compute", unit, unit.forward_us / len(unit.shapes), MAIN)
            self.host += 2
            self.sequence += 1

    def _gradients(self, unit: Unit, layers: Sequence[int]) -> None:
        for i in reversed(layers):
            number: dict[str, Any] = {"Sequence number": self.numbers_of[unit.name, i]}
            self.trace.host(NODE + "AddmmBackward0", self.host, self.host + 4, ENGINE, **number)
            self._task("compute", unit, unit.backward_us / len(unit.shapes), ENGINE)
            self.host += 2
            dtype = {"Float": "float", "BFloat16": "c10::BFloat16"}[self.job.gathered_as]
            dims: dict[str, Any] = {"Input Dims": [list(unit.shapes[i])], "Input type": [dtype]}
            self.trace.host(NODE + ACCUMULATE, self.host, self.host + 3, ENGINE)
            self.trace.host(
                ACCUMULATE, self.host + 0.5, self.host + 1, ENGINE, **(dims if self.job.shapes else {})
            )
            self.host += 4

    def run_until_collective(self) -> None:
        """Run the device up to the next collective."""
        while self.tasks and self.tasks[0].kind not in ("gather", "scatter"):
            task = self.tasks.pop(0)
            begin = max(self.computed, task.at + 2)
            if task.kind == "copy_out":
                if not task.again and self.copies:
                    self.allowed = max(self.allowed, self.copies[-1])
                begin = max(begin, self.gathered[task.unit.name])
            elif task.kind == "copy_in":
                begin = max(begin, self.scattered)
            self.computed = begin + task.us
            if task.kind == "copy_out":
                self.copies.append(begin)
                if task.again:
                    self.allowed = max(self.allowed, begin)
            self.trace.launch(task.at, begin, self.computed, thread=task.thread)
        self.done = not self.tasks

    def issued(self) -> tuple[float, _Task] | None:
        """When the next collective may begin here."""
        if not self.tasks:
            return None
        task = self.tasks[0]
        waits = self.allowed if task.kind == "gather" else self.computed
        return max(self.free, waits, task.at + 2), task

    def message_bytes(self) -> int:
        task = self.tasks[0]
        if task.kind == "gather":
            return self.job.gathered(task.unit) * _ITEM[self.job.gathered_as]
        return self.job.padded(task.unit) * _ITEM[self.job.scattered_as]

    def collective(self, begin: float, end: float) -> None:
        """The next collective, from its begin on this rank to the end on all."""
        task = self.tasks.pop(0)
        self.free = end
        gathers = task.kind == "gather"
        whole = self.job.gathered(task.unit) if gathers else self.job.padded(task.unit)
        counts = [whole // self.job.ranks, whole]
        if gathers:
            self.gathered[task.unit.name] = end
        else:
            counts.reverse()
            self.scattered = end
        name = "_allgather_base" if gathers else "_reduce_scatter_base"
        self.trace.host(f"c10d::{name}_", task.at - 0.1, task.at + 2.9, task.thread)
        self.trace.launch(
            task.at, begin, end, thread=task.thread, stream=_GATHERING if gathers else _SCATTERING,
            name=f"ncclDevKernel_{'AllGather' if gathers else 'ReduceScatter'}_RING_LL(int)",
            **{
                "Collective name": name, "Group size": self.job.ranks,
                "dtype": self.job.gathered_as if gathers else self.job.scattered_as,
                "In msg nelems": counts[0], "Out msg nelems": counts[1],
                "Process Group Description": "default_pg",
            },
        )  # fmt: skip
        self.done = not self.tasks

    def finish(self) -> float:
        """Update behind everything; when that ends."""
        begin = max(self.computed, self.free, self.host + 2)
        self.trace.host("Optimizer.step#AdamW.step", self.host, self.host + 4, cat="user_annotation")
        self.trace.host("aten::_foreach_add_", self.host + 0.5, self.host + 3)
        self.trace.launch(self.host + 1, begin, begin + self.job.update_us)
        self.computed = begin + self.job.update_us
        self.host += 5
        mark = f"ProfilerStep#{self.step}"
        self.trace.host(mark, self.begin, self.host, cat="user_annotation")
        self.host += 1
        self.host = max(self.host, self.computed - 50)
        return self.computed


def _name(what: str, unit: Unit) -> str:
    return f"FSDP::{what} ({unit.name})" if unit.name else f"FSDP::{what}"
