"""The report beside an imported Kineto trace: what was found, what was assumed, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from hocket.interop.kineto.compiled_backward import BY_COMPILED, WITHOUT_IT
from hocket.interop.kineto.exchange_checks import has_shapes
from hocket.interop.kineto.gradient_sizes import APART
from hocket.interop.kineto.gradients import BY_REDUCTIONS, TracedGradients
from hocket.interop.kineto.step_times import busy_s
from hocket.interop.kineto.traced_collectives import collectives_in_words, mebibytes
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.interop.kineto.traced_units import BY_UNITS, TracedUnit, scattered_per_gathered
from hocket.text import counted

_MICRO = 1e-6
_HOST_BOUND = 0.5


def step_notes(source: str, device: str, steps: Sequence[TracedStep]) -> list[str]:
    """Notes on a rank: the length of its steps, and the device and streams they ran on."""
    elapsed_s = [step.elapsed_s for step in steps]
    gpu_s = median(busy_s(step) for step in steps)
    notes = [
        f"{source}: {counted(len(steps), 'step')} of {_ms(median(elapsed_s))} (median) on {device}, "
        f"{_ms(min(elapsed_s))} to {_ms(max(elapsed_s))}; the GPU is busy for {_ms(gpu_s)} of it"
    ]
    if gpu_s < _HOST_BOUND * median(elapsed_s):
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


def exchange_notes(samples: Sequence[TracedStep]) -> list[str]:
    """Notes on collectives: those that plans replace, and those that stay as recorded."""
    notes = []
    first = samples[0]
    if first.marks > 1:
        begun = ", the first of which is taken to be in the trace" if len(samples) == 1 else ""
        notes.append(
            f"a step is one of the optimizer: {first.marks} marked steps that accumulate gradients{begun}"
        )
    if first.reductions:
        size = first.reduced_bytes
        took_us = median(sum(r.gpu.end_us - r.gpu.start_us for r in own.reductions) for own in samples)
        together = "" if len(first.reductions) == 1 else " together"
        waited_s = median(own.waited_s for own in samples)
        notes.append(
            f"{counted(len(first.reductions), 'all-reduce')} a step, "
            f"{'of unknown size' if size is None else f'{size / 2**20:.2f} MiB'}: "
            f"{_ms(took_us * _MICRO)}{together} (waiting for other ranks included), for which the GPU idles "
            f"{_ms(waited_s)}; plans place them"
        )
    if first.transfers:
        took_us = median(sum(e.gpu.end_us - e.gpu.start_us for e in own.exchanges) for own in samples)
        waited_s = median(own.waited_s for own in samples)
        found = collectives_in_words(first.exchanges)
        notes.append(
            f"{found} of units a step: {_ms(took_us * _MICRO)} together (waiting for other ranks "
            f"included), for which the GPU idles {_ms(waited_s)}; plans place them, and copies into and out "
            "of them stay as recorded"
        )
    others = [operation.collective for operation in first.others if operation.collective is not None]
    notes += [
        f"{collectives_in_words([c for c in others if c.kind == kind])} a step: operations that take as long "
        "as recorded, whatever the number of workers"
        for kind in dict.fromkeys(collective.kind for collective in others)
    ]
    return notes


def gradient_notes(step: TracedStep, gradients: TracedGradients, *, by_nodes: bool) -> list[str]:
    """Notes on sizes: where they are from, what they leave open; ``by_nodes``: from an ExecutionTrace."""
    notes = []
    if gradients.passes > 1:
        notes.append(
            f"{gradients.passes} backward passes a step accumulate gradients; the last completes them"
        )
    count, own = gradients.count, gradients.shaped_bytes
    sent = step.reduced_bytes if step.reductions else own  # units' bytes are told beside these
    if gradients.sized_by == BY_REDUCTIONS and own is None:
        notes.append(
            f"each all-reduce is one parameter ('bucket0', ...), though {count} gradients are in them: "
            "their sizes are not in the trace"
            + ("" if has_shapes(step) else "; record_shapes=True records them")
        )
    elif gradients.sized_by == BY_UNITS:
        lacking = "" if has_shapes(step) else "; record_shapes=True records them"
        notes.append(
            f"each unit is one parameter, though {count} gradients are in them: their sizes are not known, "
            f"or do not fill the messages{lacking}"
        )
    elif gradients.sized_by == BY_COMPILED:
        notes.append(
            "its backward pass is compiled autograd's: each all-reduce in it is taken to be one parameter "
            "('bucket0', ...), and plans that order transfers by what the forward pass reads mean "
            f"nothing; for parameters, {WITHOUT_IT}"
        )
    elif gradients.sized_by == BY_REDUCTIONS:
        notes.append(
            "each all-reduce is one parameter ('bucket0', ...), since some were not used in the step"
        )
    else:
        source = "the ExecutionTrace" if by_nodes else gradients.sized_by
        notes.append(f"{counted(len(gradients.parameters), 'parameter')}, sizes from {source}")
    if gradients.lack_types and gradients.sized:
        notes.append("types of tensors are not in the trace: gradients are taken to be float32")
    if own is not None and sent is not None and abs(sent - own) > own * APART:
        sent_as = sorted({reduction.dtype for reduction in step.reductions})
        notes.append(
            f"gradients have {mebibytes(own)} and travel in {mebibytes(sent)} ({sent / own:.0%}), as "
            f"{', '.join(sent_as)}: that is what plans send"
        )
    if not step.exchanges and not step.updates:
        notes.append("nothing runs after the backward pass: the optimizer's step is not in the trace")
    if gradients.without_reader:
        notes.append(
            f"{counted(gradients.without_reader, 'parameter')} without a forward operation in the trace: "
            "taken to be read by the first one"
        )
    return notes


def unit_notes(units: Sequence[TracedUnit]) -> list[str]:
    """Notes on the units of a sharded step: their ranks and sizes, what is frozen, what types travel."""
    gathered = sum(unit.gather.size_bytes or 0 for unit in units)
    again = sum(unit.gathered_again for unit in units)
    notes = [
        f"{counted(len(units), 'unit')} of FSDP2 between {units[0].gather.group_size} ranks, "
        f"{mebibytes(gathered)} gathered; {again} of them resharded after their forward pass"
    ]
    frozen = [p for unit in units for p in unit.parameters if p.producer is None]
    if frozen:
        notes.append(
            f"{mebibytes(sum(p.size_bytes for p in frozen))} are gathered and get no gradients: each unit's "
            "are one parameter that is not trained"
        )
    ratio = scattered_per_gathered(units)
    if ratio != 1:
        notes.append(
            f"gradients travel in {ratio:g} times the bytes of their parameters, under every sharded plan"
        )
    return notes


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
