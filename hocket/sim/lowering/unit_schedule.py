"""A step of FSDP2 under a plan, hook by hook: collectives, what each waits for, and memory.

Source: torch 2.13, ``torch/distributed/fsdp/_fully_shard`` (its parameter group and collectives).

On GPUs the program runs ahead of the device, so that only what streams wait for decides:

* All-gathers and reduce-scatters have one communicator, which runs them one by one as they are issued.
* A unit's computing waits for its all-gather. In the forward pass an all-gather waits until the unit before
  the last one waited for begins (its buffer is used again), in the backward pass until the last one does.
* Behind a unit's backward pass, computing waits for the reduce-scatter of the unit before: one at a time.
* Updates wait for everything. HSDP's all-reduces have a communicator and a stream of their own.

On CPUs (gloo) the program itself runs the step, and what it issues waits for what it has come to. There torch
computes nothing while a collective runs: it is waited for as soon as it is issued. :func:`hocket.shard`
starts them beside computing, and a reduce-scatter is waited for when two others are behind it. Which of these
holds is said by a ``RunsBeside``.

Memory is what the allocator holds beside shards, in the program's order: the buffer of an all-gather until
its copies (in the forward pass until the next unit's copies), a unit's full parameters from there until it is
resharded, its full gradients, and the buffer of a reduce-scatter until computing has waited for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hocket.graph import Plan
from hocket.graph.unit_places import UnitPlaces
from hocket.sim.lowering.beside import RunsBeside

CollectiveKind = Literal["gather", "scatter", "reduce", "norm"]
BEGIN = -1
"""In place of a link: the step's begin."""
_SCATTERS_AHEAD, _SCATTERS_BESIDE = 1, 3
"""Reduce-scatters whose buffers are held at once at most, with streams and on CPUs."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective: of which unit, and the link of the worker's chain behind which it may start.

    ``size_bytes``: of the unit's parameters, or of its trained ones; ``follows``: another collective that it
    waits for, besides the one before it in its own queue; ``again``: a gather in the backward pass.
    """

    kind: CollectiveKind
    unit: int
    size_bytes: int
    behind: int
    follows: int | None = None
    again: bool = False


@dataclass(frozen=True)
class Link:
    """A link of a worker's chain: operations between two places, or, with none, a wait for a collective."""

    first: int
    last: int
    waits_for: int | None = None


@dataclass(frozen=True)
class HeldBytes:
    """Bytes more (or fewer) that a worker holds from a link on, or from the start of a collective on."""

    link: int
    phase: Literal["forward", "backward"]
    size_bytes: int
    collective: int | None = None


@dataclass
class _Unit:
    """A unit while the program runs."""

    places: UnitPlaces
    gather: int | None = None  # issued and not waited for
    is_full: bool = False


@dataclass(kw_only=True)
class UnitSchedule:
    """A step of FSDP2: the chain that each worker runs, collectives in the order of their issue, memory."""

    plan: Plan
    places: Sequence[UnitPlaces]
    beside: RunsBeside
    all_reduced: bool
    chain: list[Link] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    held: list[HeldBytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._units = [_Unit(places) for places in self.places]
        self._phase: Literal["forward", "backward"] = "forward"
        self._place = 0
        self._copied = BEGIN  # all-gathers wait for this link
        self._last_copied: int | None = None  # ... and for this one from the next wait on
        self._buffered: int | None = None  # the unit whose all-gather's buffer is still held
        self._scatters: deque[int] = deque()  # those that computing has not waited for
        self._forward_order: list[int] = []
        self._full_bytes = self.most_full_bytes = 0  # of parameters that are whole, or on their way to be

    def run(self, turn: int, num_places: int) -> UnitSchedule:
        """Run the hooks of a whole step whose backward pass begins at place ``turn``; itself."""
        begins, ends = self._hooks([unit.forward for unit in self.places], ascending=True)
        for place in sorted({*begins, *ends}):
            self._compute_until(place)
            for unit in ends[place]:
                self._post_forward(unit)
            for unit in begins[place]:
                self._pre_forward(unit)
                if self.places[unit].forward[1] <= place:
                    self._post_forward(unit)
        self._compute_until(turn)
        self._turn()
        begins, ends = self._hooks([unit.backward for unit in self.places], ascending=False)
        for place in sorted({*begins, *ends}):
            self._compute_until(place)
            for unit in ends[place]:
                self._post_backward(unit)
            for unit in begins[place]:
                self._pre_backward(unit)
                backward = self.places[unit].backward
                if backward is not None and backward[1] <= place:
                    self._post_backward(unit)
        self._compute_until(num_places)
        self._finish()
        return self

    @staticmethod
    def _hooks(
        places: Sequence[tuple[int, int] | None], *, ascending: bool
    ) -> tuple[defaultdict[int, list[int]], defaultdict[int, list[int]]]:
        """Units that begin at each place, and those that end there after they began earlier."""
        begins: defaultdict[int, list[int]] = defaultdict(list)
        ends: defaultdict[int, list[int]] = defaultdict(list)
        for unit in range(len(places)) if ascending else reversed(range(len(places))):
            at = places[unit]
            if at is not None:
                begins[at[0]].append(unit)
                if at[1] > at[0]:
                    ends[at[1]].append(unit)
        return begins, ends

    def _compute_until(self, place: int) -> None:
        if place > self._place:
            self.chain.append(Link(self._place, place))
            self._place = place

    def _wait(self, collective: int | None) -> int:
        self.chain.append(Link(self._place, self._place, collective))
        return len(self.chain) - 1

    def _hold(self, size_bytes: int, collective: int | None = None) -> None:
        self.held.append(HeldBytes(len(self.chain) - 1, self._phase, size_bytes, collective))

    def _issue(self, kind: CollectiveKind, unit: int, size_bytes: int, behind: int, **more: object) -> int:
        self.collectives.append(
            Collective(kind=kind, unit=unit, size_bytes=size_bytes, behind=behind, **more)  # type: ignore[arg-type]
        )
        return len(self.collectives) - 1

    def _gather(self, index: int) -> None:
        """``unshard``: nothing where the unit is full, or on its way."""
        unit = self._units[index]
        if unit.gather is not None or unit.is_full:
            return
        behind = self._copied if self.beside.ahead else len(self.chain) - 1
        size = unit.places.gathered_bytes
        self._full_bytes += size
        self.most_full_bytes = max(self.most_full_bytes, self._full_bytes)
        unit.gather = self._issue("gather", index, size, behind, again=self._phase == "backward")
        self._hold(size, unit.gather)
        if not self.beside.gathers:
            self._wait(unit.gather)

    def _await_gather(self, index: int) -> None:
        """``wait_for_unshard``: the copies out of the buffer are the beginning of the unit's computing."""
        unit = self._units[index]
        if unit.gather is None:
            return
        forward = self._phase == "forward"
        if forward and self._last_copied is not None:
            self._release_buffer()
        link = self._wait(unit.gather)
        unit.gather, unit.is_full = None, True
        self._hold(unit.places.gathered_bytes)
        self._buffered, self._last_copied = index, link
        if not forward:
            self._release_buffer()

    def _release_buffer(self) -> None:
        if self._last_copied is not None and self._buffered is not None:
            self._copied = max(self._copied, self._last_copied)
            self._hold(-self.places[self._buffered].gathered_bytes)
            self._last_copied = self._buffered = None

    def _reshard(self, index: int) -> None:
        if self._units[index].is_full:
            self._units[index].is_full = False
            self._full_bytes -= self.places[index].gathered_bytes
            self._hold(-self.places[index].gathered_bytes)

    def _pre_forward(self, index: int) -> None:
        self._gather(index)
        self._await_gather(index)
        for target in self.plan.forward_prefetch[index] if self.plan.forward_prefetch is not None else ():
            self._gather(target)

    def _post_forward(self, index: int) -> None:
        self._forward_order.append(index)
        if self.plan.reshard_after_forward[index]:
            self._reshard(index)

    def _turn(self) -> None:
        self._release_buffer()
        self._phase = "backward"

    def _pre_backward(self, index: int) -> None:
        self._gather(index)
        self._await_gather(index)
        if self.plan.backward_prefetch is not None:
            for target in self.plan.backward_prefetch[index]:
                self._gather(target)
            return
        position = self._forward_order.index(index)
        if position > 0:
            self._gather(self._forward_order[position - 1])

    def _post_backward(self, index: int) -> None:
        unit = self.places[index]
        self._hold(unit.scattered_bytes)  # its gradients, all of which are there now
        self._reshard(index)
        if self.beside.ahead:
            self._await_scatters(_SCATTERS_AHEAD - 1)
        if unit.scattered_bytes == 0:
            return
        self._hold(self._buffer_bytes(unit.scattered_bytes))
        self._hold(-unit.scattered_bytes)  # copied into the buffer
        here = len(self.chain) - 1
        scatter = self._issue("scatter", index, unit.scattered_bytes, here)
        self._scatters.append(scatter)
        if self.all_reduced:
            reduce = self._issue("reduce", index, unit.scattered_bytes, here, follows=scatter)
            if not self.beside.scatters:
                self._wait(reduce)
        if not self.beside.ahead:
            self._await_scatters(_SCATTERS_BESIDE - 1 if self.beside.scatters else 0)

    def _buffer_bytes(self, size_bytes: int) -> int:
        """Of a reduce-scatter: what is sent and, where shares are exchanged or gloo copies, as much again."""
        return size_bytes if self.beside.ahead else 2 * size_bytes

    def _await_scatters(self, left: int) -> None:
        """Wait for the oldest reduce-scatters until so many are left."""
        while len(self._scatters) > left:
            oldest = self._scatters.popleft()
            self._wait(oldest)
            self._hold(-self._buffer_bytes(self.collectives[oldest].size_bytes))

    def _finish(self) -> None:
        """Wait, as an optimizer's step does, for all that was issued."""
        self._await_scatters(0)
        reduces = [k for k, each in enumerate(self.collectives) if each.kind == "reduce"]
        for waited in [*(unit.gather for unit in self._units), *reduces[-1:]]:
            if waited is not None:
                self._wait(waited)
        for index, unit in enumerate(self._units):
            if unit.gather is not None:
                self._hold(-self.places[index].gathered_bytes)
            self._reshard(index)

    def most_held(self) -> dict[str, int]:
        """The most bytes that are held at once in each pass."""
        most, now = {"forward": 0, "backward": 0}, 0
        for each in self.held:
            now += each.size_bytes
            most[each.phase] = max(most[each.phase], now)
        return most
