"""The steps of several ranks that are samples of one and the same step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hocket.errors import FormatError
from hocket.interop.kineto.events import Trace
from hocket.interop.kineto.gradient_passes import completed
from hocket.interop.kineto.gradient_sizes import APART
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.step_cuts import cut_steps
from hocket.interop.kineto.traced_collectives import mebibytes
from hocket.interop.kineto.traced_operations import TracedStep


def steps_alike(traces: Sequence[Trace]) -> tuple[list[list[TracedStep]], list[str]]:
    """Of each rank the steps that all ranks recorded and that do what most of them do, and what to say of it.

    Raises
    ------
    FormatError
        When steps train differently, ranks do different things, or no step is every rank's.
    """
    kept, notes = [], []
    for trace in traces:
        own, said = _most_alike(trace, cut_steps(trace))
        kept.append(own)
        notes += said
    ranks = Counter(trace.rank for trace in traces if trace.rank is not None)
    for trace in traces:
        if trace.rank is not None and ranks[trace.rank] > 1:
            trace.refuse(
                f"is of rank {trace.rank}, and so is another file; give each rank once", "distributedInfo"
            )
    for trace, own in zip(traces[1:], kept[1:], strict=True):
        _require_same(traces[0], kept[0][0], trace, own[0])
    shared = set.intersection(*({step.label for step in own} for own in kept))
    if not shared:
        rule = f"shares no step with {traces[0].source}; trace the same steps on every rank"
        raise FormatError(traces[1].source, "traceEvents", rule)
    for trace, own in zip(traces, kept, strict=True):
        alone = [step.label for step in own if step.label not in shared]
        if alone:
            notes.append(f"{trace.source}: left out, since not every rank has them: {', '.join(alone)}")
    return [[step for step in own if step.label in shared] for own in kept], notes


def _most_alike(trace: Trace, steps: Sequence[TracedStep]) -> tuple[list[TracedStep], list[str]]:
    if not steps:
        trace.refuse("no GPU operation was launched within a step")
    # A step that only evaluates, or was cut before its backward pass, does not train if others do.
    # Of a file that is cut only the steps that it holds as a whole count.
    whole = [step for step in steps if step.missing == min(step.missing for step in steps)]
    training = [step for step in whole if StepReader(step).trains] or whole
    counts = Counter(step.key() for step in training)
    # Of as many the last: the first step sets up what others find ready. But the last may be cut.
    most = max(counts.values())
    likely = [step for step in reversed(training) if counts[step.key()] == most]
    key = (max(likely, key=lambda step: len(step.operations)) if trace.cut else likely[0]).key()
    kept = [step for step in steps if step.key() == key]
    left = [step for step in steps if step.key() != key]
    for step in left:
        if step in training and not trace.cut:
            at_edge = step in (steps[0], steps[-1])
            _require_as_much(trace, kept[0], step, at_edge=at_edge)
    if not left:
        return kept, []
    labels = ", ".join(step.label for step in left)
    return kept, [
        f"{trace.source}: {len(kept)} of {len(steps)} steps run the same operations; left out: {labels}"
    ]


def _require_as_much(trace: Trace, kept: TracedStep, left: TracedStep, *, at_edge: bool) -> None:
    """Refuse to leave a step out that trains more than those that are kept, or trains something else.

    ``at_edge``: it is the first or the last one, which may be cut, or sets things up.
    """
    fix = "; record steps that train alike, of one model, with no_sync() and profiler.step() as in every step"
    if left.updates and not kept.updates:
        trace.refuse(
            f"{left.label} updates parameters, and most steps, such as {kept.label}, do not, though they "
            f"exchange gradients or complete some{fix}"
        )
    sent, mine = (sum(r.size_bytes or 0 for r in step.reductions) for step in (left, kept))
    more = len(left.reductions) > 0 and not kept.reductions
    if more or sent > mine * (1 + APART) or (not at_edge and sent < mine * (1 - APART)):
        trace.refuse(
            f"{left.label} all-reduces {mebibytes(sent)} of gradients and most steps, such as {kept.label}, "
            f"{mebibytes(mine)}{fix}"
        )
    gradients, most = (len(completed(step, StepReader(step)).gradients) for step in (left, kept))
    if gradients > most or (not at_edge and gradients < most):
        trace.refuse(
            f"{left.label} completes {gradients} gradients and most steps, such as {kept.label}, {most}{fix}"
        )


def _require_same(first: Trace, expected: TracedStep, trace: Trace, found: TracedStep) -> None:
    pairs = (
        ("all-reduce", [f"{r.size_bytes} bytes" for r in expected.reductions],
         [f"{r.size_bytes} bytes" for r in found.reductions]),
        ("transfer of a unit", [f"{t.kind} of {t.collective.size_bytes} bytes" for t in expected.transfers],
         [f"{t.kind} of {t.collective.size_bytes} bytes" for t in found.transfers]),
        ("operation", [expected.operations[i].name for i in expected.launched()],
         [found.operations[i].name for i in found.launched()]),
    )  # fmt: skip
    for what, of_first, of_other in pairs:
        if of_first == of_other:
            continue
        k = next(
            (k for k, (a, b) in enumerate(zip(of_first, of_other, strict=False)) if a != b),
            min(len(of_first), len(of_other)),
        )
        here, there = ([*of_other, "nothing"][k], [*of_first, "nothing"][k])
        trace.refuse(
            f"{what} {k} of a step is {here} where {first.source} has {there}; give ranks of one job"
        )
