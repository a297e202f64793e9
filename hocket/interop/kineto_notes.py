"""What is said beside an imported Kineto trace: what was found, what was assumed, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from hocket.interop.kineto_gradients import Gradients
from hocket.interop.kineto_steps import Step
from hocket.words import counted

_MICRO = 1e-6
_HOST_BOUND = 0.5


def step_notes(source: str, device: str, steps: Sequence[Step]) -> list[str]:
    """How long a rank's steps took, and on what."""
    elapsed_s = [step.elapsed_s for step in steps]
    busy_s = median(sum(o.gpu.end_us - o.gpu.start_us for o in step.operations) * _MICRO for step in steps)
    notes = [
        f"{source}: {counted(len(steps), 'step')} of {_ms(median(elapsed_s))} (median) on {device}, "
        f"{_ms(min(elapsed_s))} to {_ms(max(elapsed_s))}; GPU operations take {_ms(busy_s)} of it"
    ]
    if busy_s < _HOST_BOUND * median(elapsed_s):
        notes.append(
            "the host keeps the GPU waiting for more than half of the step (launches, data, the profiler's "
            "own cost): that counts as computing, and hides transfers that a faster host would not hide"
        )
    streams = Counter(o.gpu.stream for o in steps[0].operations)
    if len(streams) > 1:
        beside = streams.total() - streams.most_common(1)[0][1]
        notes.append(
            f"{counted(beside, 'operation')} a step ran on streams beside the busiest one; here a worker "
            "runs one operation at a time, and they take the time that nothing else covers"
        )
    return notes


def gradient_notes(samples: Sequence[Step], gradients: Gradients, *, by_nodes: bool) -> list[str]:
    """What was reduced, and where sizes are from; ``by_nodes``: shapes are an ExecutionTrace's."""
    notes = []
    reductions = samples[0].reductions
    if reductions:
        size = sum(reduction.size_bytes or 0 for reduction in reductions)
        took_us = median(sum(r.gpu.end_us - r.gpu.start_us for r in own.reductions) for own in samples)
        waited_s = median(own.waited_s for own in samples)
        notes.append(
            f"{counted(len(reductions), 'all-reduce')} a step, {size / 2**20:.2f} MiB: "
            f"{_ms(took_us * _MICRO)} (waiting for other ranks included), for which the GPU idles "
            f"{_ms(waited_s)}; plans place them"
        )
    others = Counter(operation.collective for operation in samples[0].operations if operation.collective)
    for kind, count in others.items():
        notes.append(
            f"{counted(count, kind)} a step: operations that take as long as recorded, "
            "whatever the number of workers"
        )
    count = gradients.count
    if gradients.sized_by == "all-reduces":
        notes.append(
            f"each all-reduce is one parameter ('bucket0', ...), though {count} gradients are in them: "
            "their sizes are not in the trace; record_shapes=True records them"
        )
    elif gradients.parameters:
        source = "the ExecutionTrace" if by_nodes else gradients.sized_by
        notes.append(f"{counted(len(gradients.parameters), 'parameter')}, sizes from {source}")
    elif count:
        notes.append(
            f"no parameters: {count} gradients are completed, but their sizes are not in the trace; record "
            "with record_shapes=True, or give the job's --execution-trace; without, nothing can be planned"
        )
    else:
        notes.append("no parameters: the trace holds no gradients")
    if gradients.without_reader:
        notes.append(
            f"{counted(gradients.without_reader, 'parameter')} without a forward operation in the trace: "
            "taken to be read by the first one"
        )
    return notes


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
