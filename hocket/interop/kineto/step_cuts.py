"""A Kineto trace cut into its steps: from one update of the parameters to the next.

Steps are the ``ProfilerStep#`` annotations; without them, what lies between the ends of two
``Optimizer.step#`` with a backward pass between them; without these, the whole trace. A GPU operation belongs
to the step in which it was launched.

**Accumulated gradients.** Where ``profiler.step()`` was called for each micro-batch, marked steps with a
backward pass that neither update the parameters nor all-reduce gradients belong to the next one that does:
together they are one step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from hocket.errors import FormatError
from hocket.interop.kineto.events import STEP_PREFIX, Gpu, Trace
from hocket.interop.kineto.hookless_reductions import claim_reductions
from hocket.interop.kineto.traced_collectives import ALL_REDUCE, collective_of, in_hook
from hocket.interop.kineto.traced_operations import (
    UNMARKED,
    TracedStep,
    fill,
    passes_back,
    time_operations,
    updates_after,
)
from hocket.interop.kineto.unit_transfers import claim_transfers

_OF_GRAPH = "GPU operations are of a CUDA graph whose launch is not in the file"


def cut_steps(trace: Trace) -> list[TracedStep]:
    """The steps of a trace, in order, with what they ran on the GPU.

    Raises
    ------
    FormatError
        Naming the file, if nothing ran on a GPU, or the launch of an operation within the steps is missing.
    """
    if not trace.gpu:
        rule = "holds no GPU operation with its launch; record ProfilerActivity.CPU and CUDA"
        if any(late.of_graph for late in trace.unlaunched):
            rule = f"{_OF_GRAPH}; record ProfilerActivity.CPU and CUDA, or train without CUDA graphs"
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
    for at_us in trace.unanswered:
        steps[max(0, bisect_right(begins, at_us) - 1)].missing += 1
    for event in trace.host:
        k = bisect_right(begins, event.start_us) - 1
        if k >= 0 and event.start_us < steps[k].end_us:
            steps[k].host.append(event)
    busy_us = max([steps[0].begin_us, *ends_before])
    for step, ran in zip(steps, launched, strict=True):
        fill(step, ran)
        claim_transfers(step)
        if not step.transfers:
            claim_reductions(step)
        busy_us = time_operations(step, busy_us)
    return [step for step in steps if step.operations]


def _launched_before_recording(trace: Trace, steps: Sequence[TracedStep]) -> list[float]:
    """The end of what the host had launched before the recording began; no other launch may be missing.

    Of a trace that is cut they may, and the steps that they may belong to say so.
    """
    first: dict[int | None, float] = {}
    for gpu in trace.gpu:
        first.setdefault(gpu.stream, gpu.start_us)
    ends = []
    for late in trace.unlaunched:
        # A stream runs in the order of launches. Of one without any, what runs before all others counts.
        if late.start_us < first.get(late.stream, trace.gpu[0].start_us):
            ends.append(late.end_us)
        elif trace.cut:
            # It ran some time after its launch: in the same step, or in the next.
            k = sum(step.begin_us <= late.start_us for step in steps)
            for step in steps[max(0, k - 2) : k]:
                step.missing += 1
        elif steps[0].begin_us <= late.start_us < steps[-1].end_us:
            place = f"traceEvents[{late.place}].args"
            if late.of_graph:
                rule = f"{_OF_GRAPH} ('{late.name}'); train without CUDA graphs while the trace is recorded"
                raise FormatError(trace.source, f"{place}.correlation", rule)
            if late.correlated:
                rule = "its correlation is that of no call of the runtime: the launch is not in the file"
                raise FormatError(trace.source, f"{place}.correlation", rule)
            rule = f"'{late.name}' needs stream and correlation, whole numbers; record the trace again"
            raise FormatError(trace.source, place, rule)
    return ends


def _intervals(trace: Trace) -> list[TracedStep]:
    marked = {event.name: event for event in trace.host if event.name.startswith(STEP_PREFIX)}
    if marked:
        events = sorted(marked.values(), key=lambda event: event.start_us)
        steps = [TracedStep(event.name, event.start_us, event.end_us) for event in events]
        # An operation launched between two annotations, as by a logger, belongs to the one before.
        for step, following in pairwise(steps):
            step.end_us = following.begin_us
        return _accumulated(trace, steps)
    begin_us = min([trace.gpu[0].call.start_us, *(event.start_us for event in trace.host[:1])])
    ends = _ends_of_updates(trace)
    if not ends:
        last_us = max(gpu.call.end_us for gpu in trace.gpu) + 1.0
        return [TracedStep(UNMARKED, begin_us, last_us)]
    edges = [begin_us, *ends]
    return [
        TracedStep(f"step {k}", begin, end) for k, (begin, end) in enumerate(pairwise(edges)) if begin < end
    ]


def _ends_of_updates(trace: Trace) -> list[float]:
    """The times at which parameters are updated; optimizers without a backward pass between are one."""
    moments = [(event.start_us, False) for event in trace.host if passes_back(event)]
    moments += [(event.end_us, True) for event in trace.host if updates_after(event)]
    trains = not all(updates for _, updates in moments)
    ends: list[float] = []
    passed = True
    for at_us, updates in sorted(moments):
        if updates and ends and trains and not passed:
            ends[-1] = at_us
        elif updates:
            ends.append(at_us)
        passed = not updates
    return ends


def _accumulated(trace: Trace, marked: Sequence[TracedStep]) -> list[TracedStep]:
    """Marked steps as steps of the optimizer: what only accumulates gradients belongs to the next."""
    begins = [step.begin_us for step in marked]

    def place(at_us: float) -> int:
        k = bisect_right(begins, at_us) - 1
        return k if k >= 0 and at_us < marked[k].end_us else -1

    trains = {place(event.start_us) for event in trace.host if passes_back(event)}
    updates = {place(event.start_us) for event in trace.host if updates_after(event)}
    reduces = {place(gpu.call.start_us) for gpu in trace.gpu if _exchanges(gpu)}
    ends = updates | reduces
    steps: list[TracedStep] = []
    collecting = False
    for k, step in enumerate(marked):
        if collecting:
            steps[-1].label = f"{steps[-1].label.partition(' to ')[0]} to {step.label}"
            steps[-1].end_us = step.end_us
            steps[-1].marks += 1
        else:
            steps.append(step)
        # Without a backward pass, as when a model is evaluated, nothing is accumulated.
        collecting = bool(ends) and k not in ends and (collecting or k in trains)
    return steps


def _exchanges(gpu: Gpu) -> bool:
    """Tell whether it all-reduces gradients where they are complete."""
    chain = gpu.call.host.chain() if gpu.call.host is not None else []
    if not in_hook(chain):
        return False
    collective = collective_of(gpu, chain)
    return collective is not None and collective.kind == ALL_REDUCE and not collective.counts
