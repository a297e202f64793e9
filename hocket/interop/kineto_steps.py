"""A Kineto trace cut into its steps: the GPU operations of each, their phase, and how long they take.

Steps are the ``ProfilerStep#`` annotations; without them, what lies between the ends of two
``Optimizer.step#``; without these, the whole trace. A GPU operation belongs to the step in which it was
launched.

**Phases.** Update: launched in ``Optimizer.step#``, or after the last operation that autograd's nodes
launched. Backward: launched by one of these nodes. Forward: the rest.

**Durations.** A step is one sequence to Hocket, so an operation takes the time on the GPU that no
operation before it covers, and the idle time before it: that is what the host kept the GPU waiting for.
Not counted is idle time that ends with an all-reduce of gradients, after the operation was launched: that
wait is what plans change.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hocket.errors import FormatError
from hocket.graph import Phase
from hocket.interop.kineto_collectives import (
    ALL_REDUCE,
    Reduction,
    collective_of,
    in_hook,
    message_of,
    of_gradients,
)
from hocket.interop.kineto_events import NODE_PREFIX, OPTIMIZER_PREFIX, STEP_PREFIX, Gpu, Host, Trace

_MICRO = 1e-6


@dataclass(slots=True, eq=False)
class Operation:
    """A GPU operation of one step; ``name`` as yet without a number."""

    gpu: Gpu
    phase: Phase
    name: str
    duration_s: float = 0.0
    collective: str = ""


@dataclass(slots=True, eq=False)
class Step:
    """One step; ``operations`` in order of their start, ``reductions`` in the order of their launch.

    ``elapsed_s``: from the end of the step before to the end of this one, on the GPU.
    """

    label: str
    begin_us: float
    end_us: float
    host: list[Host] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    elapsed_s: float = 0.0
    waited_s: float = 0.0

    def launched(self) -> list[int]:
        """Places of the operations in the order of their launch.

        It is the program's: streams run beside one another, and which starts first differs by chance. What
        one call launched, as that of a CUDA graph does, goes stream by stream.
        """
        of = [operation.gpu for operation in self.operations]
        return sorted(range(len(of)), key=lambda i: (of[i].call.start_us, of[i].stream))

    def key(self) -> tuple[object, ...]:
        """What steps that do the same have in common."""
        in_order = [self.operations[i] for i in self.launched()]
        return (
            tuple((operation.phase, operation.name) for operation in in_order),
            tuple(reduction.size_bytes for reduction in self.reductions),
        )


def short_name(name: str) -> str:
    """An operator without its namespace; of autograd's nodes, the node."""
    if name.startswith(NODE_PREFIX):
        name = name.rpartition(": ")[2]
    return name.rpartition("::")[2]


def cut_steps(trace: Trace) -> list[Step]:
    """The steps of a trace, in order, with what they ran on the GPU.

    Raises
    ------
    FormatError
        Naming the file, if nothing ran on a GPU, or the launch of an operation within the steps is missing.
    """
    if not trace.gpu:
        rule = "holds no GPU operation with its launch; record ProfilerActivity.CPU and CUDA"
        raise FormatError(trace.source, "traceEvents", rule)
    steps = _intervals(trace)
    begins = [step.begin_us for step in steps]
    launched: list[list[Gpu]] = [[] for _ in steps]
    ends_before = _launched_before_recording(trace, steps)
    for gpu in trace.gpu:
        k = bisect_right(begins, gpu.call.start_us) - 1
        if k < 0:
            ends_before.append(gpu.end_us)
        elif gpu.call.start_us < steps[k].end_us:
            launched[k].append(gpu)
    for event in trace.host:
        k = bisect_right(begins, event.start_us) - 1
        if k >= 0 and event.start_us < steps[k].end_us:
            steps[k].host.append(event)
    busy_us = max([steps[0].begin_us, *ends_before])
    for step, ran in zip(steps, launched, strict=True):
        _fill(step, ran)
        busy_us = _time(step, busy_us)
    return [step for step in steps if step.operations]


def _launched_before_recording(trace: Trace, steps: Sequence[Step]) -> list[float]:
    """When what the host had launched before the recording began ended; no other launch may be missing."""
    first: dict[int, float] = {}
    for gpu in trace.gpu:
        first.setdefault(gpu.stream, gpu.start_us)
    ends = []
    for late in trace.unlaunched:
        # A stream runs in the order of launches. Of one without any, what runs before all others counts.
        if late.start_us < first.get(late.stream, trace.gpu[0].start_us):
            ends.append(late.end_us)
        elif steps[0].begin_us <= late.start_us < steps[-1].end_us:
            rule = "its correlation is that of no call of the runtime: the launch is not in the file"
            raise FormatError(trace.source, f"traceEvents[{late.place}].args.correlation", rule)
    return ends


def _intervals(trace: Trace) -> list[Step]:
    marked = {event.name: event for event in trace.host if event.name.startswith(STEP_PREFIX)}
    if marked:
        events = sorted(marked.values(), key=lambda event: event.start_us)
        steps = [Step(event.name, event.start_us, event.end_us) for event in events]
        # What is launched between two annotations, such as by a logger, belongs to the one before.
        for step, following in pairwise(steps):
            step.end_us = following.begin_us
        return steps
    begin_us = min([trace.gpu[0].call.start_us, *(event.start_us for event in trace.host[:1])])
    ends = sorted(event.end_us for event in trace.host if event.name.startswith(OPTIMIZER_PREFIX))
    if not ends:
        last_us = max(gpu.call.end_us for gpu in trace.gpu) + 1.0
        return [Step("the whole trace", begin_us, last_us)]
    edges = [begin_us, *ends]
    return [Step(f"step {k}", begin, end) for k, (begin, end) in enumerate(pairwise(edges)) if begin < end]


def _fill(step: Step, ran: Sequence[Gpu]) -> None:
    """Sort what ran into operations and reductions, each with its phase and name."""
    chains = [gpu.call.host.chain() if gpu.call.host is not None else [] for gpu in ran]
    rows = [
        (gpu, chain, phase, collective_of(gpu, chain))
        for gpu, chain, phase in zip(ran, chains, _phases(ran, chains), strict=True)
    ]
    # Other all-reduces of the backward pass are a layer's own, as of batch statistics.
    reductions = [
        Reduction(gpu, *message_of(gpu, chain))
        for gpu, chain, phase, kind in rows
        if kind == ALL_REDUCE and phase == Phase.BACKWARD and in_hook(chain)
    ]
    reductions.sort(key=lambda reduction: reduction.gpu.call.start_us)
    step.reductions = of_gradients(reductions, step.host)
    exchanging = {id(reduction.gpu) for reduction in step.reductions}
    step.operations = [
        Operation(gpu, phase, _name(gpu, chain, phase, kind), collective=kind)
        for gpu, chain, phase, kind in rows
        if id(gpu) not in exchanging
    ]


def _phases(ran: Sequence[Gpu], chains: Sequence[Sequence[Host]]) -> list[Phase]:
    nodes = [any(event.name.startswith(NODE_PREFIX) for event in chain) for chain in chains]
    last_us = max(
        (gpu.call.start_us for gpu, in_node in zip(ran, nodes, strict=True) if in_node), default=math.inf
    )
    phases = []
    for gpu, chain, in_node in zip(ran, chains, nodes, strict=True):
        if any(event.name.startswith(OPTIMIZER_PREFIX) for event in chain):
            phases.append(Phase.UPDATE)
        elif in_node:
            phases.append(Phase.BACKWARD)
        else:
            phases.append(Phase.UPDATE if gpu.call.start_us > last_us else Phase.FORWARD)
    return phases


def _name(gpu: Gpu, chain: Sequence[Host], phase: Phase, collective: str) -> str:
    part = phase.name.lower()
    if collective:
        return f"{part}/{collective}"
    operators = [event for event in chain if not event.annotation]
    if not operators:
        return f"{part}/{re.split('[<(]', gpu.name.removeprefix('void '))[0].strip() or 'kernel'}"
    inner = operators[0]
    node = next((event for event in operators if event.name.startswith(NODE_PREFIX)), None)
    around, name = short_name((node or operators[-1]).name), short_name(inner.name)
    return f"{part}/{name}" if around == name else f"{part}/{around}/{name}"


def _time(step: Step, busy_us: float) -> float:
    """Give the step's operations their durations; when the GPU has been busy until, before and after."""
    begin_us = busy_us
    ends = sorted((reduction.gpu.end_us, reduction.gpu.call.start_us) for reduction in step.reductions)
    for operation in step.operations:
        gpu = operation.gpu
        waited_us = 0.0
        if gpu.start_us > busy_us:
            k = bisect_right(ends, (gpu.start_us, float("inf"))) - 1
            if k >= 0 and ends[k][1] < gpu.call.start_us:
                waited_us = max(0.0, ends[k][0] - max(busy_us, gpu.call.end_us))
        operation.duration_s = (max(0.0, gpu.end_us - busy_us) - waited_us) * _MICRO
        step.waited_s += waited_us * _MICRO
        busy_us = max(busy_us, gpu.end_us)
    step.elapsed_s = (busy_us - begin_us) * _MICRO
    return busy_us
