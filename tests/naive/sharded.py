"""FSDP2's hooks and streams, transcribed from torch: one stream time a worker, moved on as calls are made.

Streams run what they are given in order, and an event is recorded before anybody waits for it. So the time at
which something ends is known as soon as it is put on its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hocket.graph import Phase, Plan, StepGraph
from hocket.network import ShardGroups

Times = list[float]


@dataclass
class Run:
    """What ran when: operations by (worker, name), collectives as issued (kind, unit, times); and memory."""

    operations: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)
    collectives: list[tuple[str, int, float, float]] = field(default_factory=list)
    most_held: dict[str, int] = field(default_factory=lambda: {"forward": 0, "backward": 0})
    end_s: float = 0.0


class Group:
    """One unit, as ``FSDPParamGroup``: its state, and the places at which its hooks run."""

    def __init__(self, graph: StepGraph, names: Sequence[str], program: Sequence[int], turn: int) -> None:
        members = {graph.parameter_names.index(name) for name in names}
        reads = [bool(members & set(graph.reads.row(i).tolist())) for i in program]
        makes = [bool(members & set(graph.produces.row(i).tolist())) for i in program]
        forward = [k for k in range(turn) if reads[k]] or [turn]
        self.first = forward[0]
        self.last = min(forward[-1] + 1, turn)
        backward = [k for k in range(turn, len(program)) if reads[k] or makes[k]]
        backward += [turn] if any(makes[:turn]) else []
        self.runs_backward = bool(backward)
        self.back_first = min(backward, default=0)
        self.back_last = min(max(backward, default=0) + 1, len(program))
        self.bytes = sum(int(graph.parameter_bytes[m]) for m in members)
        self.trained_bytes = sum(int(graph.parameter_bytes[m]) for m in members if graph.produced[m])
        self.gather_event: float | None = None  # of an all-gather that nobody has waited for
        self.unsharded = False


class Twin:
    """One step of ``graph`` under ``plan``; ``samples``: the measured step that each worker repeats.

    ``blocks``: the collectives of a CPU's step that the program waits for as soon as it issues them.
    """

    def __init__(
        self,
        graph: StepGraph,
        plan: Plan,
        groups: ShardGroups,
        samples: Sequence[int],
        blocks: Sequence[str] = (),
    ) -> None:
        self.graph, self.plan, self.costs, self.samples = graph, plan, groups, samples
        self.blocks = blocks
        phase = [int(graph.phases[i]) for i in graph.order]
        ordered = [int(i) for _, _, i in sorted(zip(phase, range(len(phase)), graph.order, strict=True))]
        self.updates = [i for i in ordered if graph.phases[i] == Phase.UPDATE]
        self.program = ordered[: len(ordered) - len(self.updates)]
        self.turn = sum(int(graph.phases[i] == Phase.FORWARD) for i in self.program)
        self.units = [Group(graph, unit, self.program, self.turn) for unit in plan.units]
        self.on_gpus = graph.device != "cpu"
        zero = [0.0] * len(samples)
        self.compute, self.gather_stream, self.reduce_stream = list(zero), list(zero), list(zero)
        self.communicator = 0.0  # when it is free
        self.other_communicator = 0.0
        self.run = Run()
        self.phase, self.held = "forward", 0
        self.deferred: tuple[int, Times] | None = None  # all_gather_state: bytes and the copies' event
        self.post_forward_order: list[int] = []
        self.scatter_states: list[tuple[float, int]] = []
        self.post_reduce = 0.0

    def hold(self, size: int) -> None:
        self.held += size
        self.run.most_held[self.phase] = max(self.run.most_held[self.phase], self.held)

    def collective(self, kind: str, unit: int, stream: Times, seconds: float) -> float:
        start = max(*stream, self.communicator)
        self.communicator = start + seconds
        self.run.collectives.append((kind, unit, start, start + seconds))
        return start + seconds

    def unshard(self, unit: int) -> None:
        group = self.units[unit]
        if group.gather_event is not None or group.unsharded:
            return
        stream = self.gather_stream if self.on_gpus else self.compute
        group.gather_event = self.collective("gather", unit, stream, self.costs.gather_s(group.bytes))
        if self.on_gpus:
            self.gather_stream = [group.gather_event] * len(stream)
        if "gather" in self.blocks:
            self.compute = [group.gather_event] * len(stream)
        self.hold(group.bytes)

    def wait_for_unshard(self, unit: int) -> None:
        group = self.units[unit]
        if group.gather_event is None:
            return
        if self.phase == "forward" and self.deferred is not None:
            self.free_deferred()
        self.compute = [max(t, group.gather_event) for t in self.compute]
        self.hold(group.bytes)
        group.unsharded, group.gather_event = True, None
        self.deferred = (group.bytes, list(self.compute))
        if self.phase == "backward":
            self.free_deferred()

    def free_deferred(self) -> None:
        assert self.deferred is not None
        size, event = self.deferred
        self.gather_stream = [max(a, b) for a, b in zip(self.gather_stream, event, strict=True)]
        self.hold(-size)
        self.deferred = None

    def reshard(self, unit: int) -> None:
        if self.units[unit].unsharded:
            self.units[unit].unsharded = False
            self.hold(-self.units[unit].bytes)

    def pre_forward(self, unit: int) -> None:
        self.unshard(unit)
        self.wait_for_unshard(unit)
        for other in (self.plan.forward_prefetch or {unit: ()})[unit]:
            self.unshard(other)

    def post_forward(self, unit: int) -> None:
        if self.plan.reshard_after_forward[unit]:
            self.reshard(unit)
        self.post_forward_order.append(unit)

    def pre_backward(self, unit: int) -> None:
        self.unshard(unit)
        self.wait_for_unshard(unit)
        if self.plan.backward_prefetch is None:
            index = self.post_forward_order.index(unit)
            if index > 0:
                self.unshard(self.post_forward_order[index - 1])
        else:
            for other in self.plan.backward_prefetch[unit]:
                self.unshard(other)

    def post_backward(self, unit: int) -> None:
        group = self.units[unit]
        self.hold(group.trained_bytes)
        self.reshard(unit)
        if self.on_gpus and self.scatter_states:
            self.wait_for_scatter()
        if not group.trained_bytes:
            return
        received = 0 if self.on_gpus else group.trained_bytes
        self.hold(group.trained_bytes + received)
        self.hold(-group.trained_bytes)
        stream = [max(a, b) for a, b in zip(self.reduce_stream, self.compute, strict=True)]
        cost = self.costs.whole_scatter_s if "scatter" in self.blocks else self.costs.scatter_s
        ended = self.collective("scatter", unit, stream, cost(group.trained_bytes))
        if self.on_gpus:
            self.reduce_stream = [ended] * len(stream)
        self.scatter_states.append((ended, group.trained_bytes + received))
        if self.costs.replicas is not None:
            seconds = self.costs.reduce_s(group.trained_bytes)
            free = self.other_communicator if self.costs.apart else self.communicator
            start = max(ended, free)
            self.run.collectives.append(("reduce", unit, start, start + seconds))
            self.post_reduce = start + seconds
            if self.costs.apart:
                self.other_communicator = self.post_reduce
            else:
                self.communicator = self.post_reduce
            if "scatter" in self.blocks:
                self.compute = [self.post_reduce] * len(self.compute)
        if not self.on_gpus and len(self.scatter_states) > (0 if "scatter" in self.blocks else 2):
            self.wait_for_scatter()

    def wait_for_scatter(self) -> None:
        ended, size = self.scatter_states.pop(0)
        self.compute = [max(t, ended) for t in self.compute]
        self.hold(-size)

    def execute(self, operation: int, share: float = 1.0) -> None:
        for w, sample in enumerate(self.samples):
            start = self.compute[w]
            self.compute[w] += float(self.graph.durations_s[operation, sample]) * share
            self.run.operations[w, self.graph.operation_names[operation]] = (start, self.compute[w])

    def step(self, clips: bool, number: float) -> Run:
        numbers = range(len(self.units))
        for place in range(self.turn + 1):
            for u in numbers:
                if self.units[u].last == place and self.units[u].first < place:
                    self.post_forward(u)
            for u in numbers:
                if self.units[u].first == place:
                    self.pre_forward(u)
                    if self.units[u].last == place:
                        self.post_forward(u)
            if place < self.turn:
                self.execute(self.program[place])
        if self.deferred is not None:
            self.free_deferred()
        self.phase = "backward"
        for place in range(self.turn, len(self.program) + 1):
            for u in reversed(numbers):
                group = self.units[u]
                if group.runs_backward and group.back_last == place and group.back_first < place:
                    self.post_backward(u)
            for u in reversed(numbers):
                group = self.units[u]
                if group.runs_backward and group.back_first == place:
                    self.pre_backward(u)
                    if group.back_last == place:
                        self.post_backward(u)
            if place < len(self.program):
                self.execute(self.program[place])
        self.finish(clips, number)
        return self.run

    def finish(self, clips: bool, number: float) -> None:
        while self.scatter_states:
            self.wait_for_scatter()
        stray = [g.gather_event for g in self.units if g.gather_event is not None]
        self.compute = [max([t, self.post_reduce, *stray]) for t in self.compute]
        if clips:
            self.compute = [max(*self.compute, self.communicator) + number] * len(self.compute)
        for operation in self.updates:
            self.execute(operation, 1.0 / self.costs.shards)
        self.run.end_s = max(self.compute)


def run_step(
    graph: StepGraph,
    plan: Plan,
    groups: ShardGroups,
    samples: Sequence[int],
    norm_s: float | None = None,
    blocks: Sequence[str] = (),
) -> Run:
    """One step; ``norm_s``: of a step that clips, the seconds of the all-reduce of a number."""
    return Twin(graph, plan, groups, samples, blocks).step(norm_s is not None, norm_s or 0.0)
