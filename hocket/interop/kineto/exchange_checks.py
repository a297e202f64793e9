"""Checks that all a traced step exchanges is accounted for, before anything is planned for it.

A plan adds the exchange of gradients to a step. So the step must not hold it already, as computing: its
all-reduces must carry the gradients, and nothing that runs beside or behind the backward pass may carry as
much as these. Collectives of a layer (tensor and sequence parallelism, batch statistics, experts) and of the
forward pass may stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hocket.graph import Phase
from hocket.interop.kineto.compiled_backward import BY_COMPILED, WITHOUT_IT, is_compiled_backward
from hocket.interop.kineto.events import HostSpan, Trace
from hocket.interop.kineto.frameworks import (
    FSDP,
    FSDP2,
    SHARDING,
    by_bare_thread,
    every_collective,
    framework_of,
)
from hocket.interop.kineto.gradient_sizes import APART
from hocket.interop.kineto.gradients import BY_REDUCTIONS, TracedGradients
from hocket.interop.kineto.tensors import first_tensor
from hocket.interop.kineto.traced_collectives import (
    ALL_REDUCE,
    TracedCollective,
    called_on_host,
    collectives_in_words,
    mebibytes,
)
from hocket.interop.kineto.traced_operations import UNMARKED, TracedStep, passes_back, updates_after
from hocket.interop.kineto.unit_transfers import why_no_units
from hocket.text import counted

# All-reduces up to this size may stay unexplained: flags, norms, metrics.
_SMALL_BYTES = 64 * 1024
_COMPILED = re.compile(r"CompiledFunction|CompiledAutograd|compiled_autograd|_compiled_fn|Torch-Compiled")
_SMALL_SHARE = 0.1  # of the time that gradients take, for messages of unknown size


def why_not_planned(trace: Trace, step: TracedStep, gradients: TracedGradients) -> str:
    """Say why a plan for ``step`` would be wrong, and what to do; empty where it would not."""
    if gradients.sized_by == BY_COMPILED and (unclear := _of_layers(step)):
        return unclear
    rounds = _rounds(step)
    if rounds > 1:
        return (
            f"a step holds {rounds} backward passes with an optimizer step behind each, and a plan is for "
            "one; call profiler.step() after each, or trace one model at a time"
        )
    if not gradients.parameters and not gradients.count:
        return _without_gradients(step)
    if gradients.passes > 1 and step.label == UNMARKED:
        return (
            f"{gradients.passes} backward passes are in it, and neither profiler.step() nor Optimizer.step "
            "says where a step ends; call profiler.step() after each"
        )
    if not gradients.alike:
        return (
            f"the {gradients.passes} backward passes of a step complete different gradients, and a plan is "
            "for one pass; trace one model at a time"
        )
    if gradients.passes > 1 and any(r.gpu.call.start_us < gradients.begun_us for r in step.reductions):
        return (
            f"gradients are all-reduced before the last of the {gradients.passes} backward passes that "
            "accumulate them, and Hocket exchanges them once a step; accumulate under no_sync()"
        )
    if step.transfers and gradients.passes > 1:
        reason = (
            f"{gradients.passes} backward passes of a step accumulate gradients, and each gathers its units "
            "anew, while a sharded plan is for one pass; trace one pass a step"
        )
    elif gradients.sized_by == BY_REDUCTIONS and gradients.shaped_bytes is not None:
        reason = _differing(step, gradients)
    elif any(reduction.size_bytes is None for reduction in step.reductions) and not gradients.sized:
        shapes = "" if has_shapes(step) else "with record_shapes=True, "
        reason = (
            f"how large its all-reduces are is not in it; record {shapes}with PyTorch 2.3 or newer, or give "
            "the --execution-trace"
        )
    else:
        reason = ""
    return reason or _left_in(trace, step, gradients)


def _of_layers(step: TracedStep) -> str:
    """Say why all-reduces in a pass of compiled autograd may be of layers; empty where they may not."""
    forward = [operation.collective for operation in step.others if operation.phase == Phase.FORWARD]
    summed = [c for c in forward if c is not None and c.kind == ALL_REDUCE and not c.counts]
    groups = sorted({reduction.group for reduction in step.reductions})
    if not summed and len(groups) == 1:
        return ""
    beside = (
        f"its forward pass holds {collectives_in_words(summed)}"
        if summed
        else f"they go between several groups ({', '.join(groups)})"
    )
    return (
        "its backward pass is compiled autograd's, which does not say which of its "
        f"{counted(len(step.reductions), 'all-reduce')} carry gradients and which are of layers, as "
        f"{beside}; {WITHOUT_IT}"
    )


def _left_in(trace: Trace, step: TracedStep, gradients: TracedGradients) -> str:
    """Say what stays in the step, or is missing from it, and speaks against a plan."""
    suspects = _unexplained(step, gradients)
    if suspects:
        return _exchanged_otherwise(step, suspects)
    if on_host := _on_host(trace, step):
        return (
            f"a step calls {on_host}, and no kernel of a collective runs on the GPU: gradients are exchanged "
            f"on the host (gloo, MPI); trace the job with NCCL, or on one GPU{_with_shapes(step)}"
        )
    if not step.exchanges and not step.updates and (trace.world_size or 1) > 1:
        return (
            "a step neither exchanges gradients nor updates parameters, as micro-batches do that only "
            "accumulate; record whole steps of the optimizer"
        )
    if not gradients.parameters:
        return (
            f"no parameters: {counted(gradients.count, 'gradient')} of a step are complete, but their sizes "
            f"are not in the trace; {'' if has_shapes(step) else 'record with record_shapes=True, or '}give "
            "the job's --execution-trace"
        )
    if not any(parameter.size_bytes for parameter in gradients.parameters):
        return (
            f"the {counted(gradients.count, 'gradient')} of a step have 0 bytes, so nothing would be sent; "
            "trace a model that trains parameters"
        )
    return ""


def _exchanged_otherwise(step: TracedStep, suspects: Sequence[TracedCollective]) -> str:
    """Say what may exchange gradients in place of what plans replace, by its name if it has one."""
    framework = framework_of(step)
    fix = _under_ddp(step)
    found = collectives_in_words(suspects)
    sharded = any(suspect.kind == "reduce_scatter" for suspect in suspects)
    gathered = any(suspect.kind == "all_gather" for suspect in suspects)
    if framework == FSDP and (sharded or gathered):
        return (
            "it is sharded by FSDP1 (FullyShardedDataParallel), whose units are not named in a trace: a step "
            f"holds {found}; shard it with fully_shard (FSDP2), or {fix}"
        )
    if framework == FSDP2 and (sharded or gathered):
        why = why_no_units(step) or "its collectives are not marked with their units"
        return f"it is sharded by FSDP2, and a step holds {found}: {why}"
    if not step.reductions and sharded:
        by = (
            f"by {SHARDING.get(framework, framework)}"
            if framework
            else "as sharded training does (FSDP, ZeRO)"
        )
        return (
            f"gradients are exchanged by reduce_scatter, {by}, and steps are read of data-parallel "
            f"training: a step holds {found}; {fix}"
        )
    beside = f"beside its {counted(len(step.reductions), 'all-reduce')} of gradients " * bool(step.reductions)
    by = f"by {framework}" if framework else "by hand, Horovod, ZeRO, FSDP"
    if not framework and all(map(by_bare_thread, suspects)):
        by = "launched by a thread of its own, as Horovod and BytePS do"
    return (
        f"{beside}a step holds {found}, which may exchange gradients or parameters ({by}) and would count "
        f"twice beside a plan; {fix}"
    )


def has_shapes(step: TracedStep) -> bool:
    """Tell whether the shapes of operators' arguments were recorded."""
    return any(event.args.shapes for event in step.host)


def _with_shapes(step: TracedStep) -> str:
    return "" if has_shapes(step) else ", with record_shapes=True"


def _under_ddp(step: TracedStep) -> str:
    return f"trace the job under DistributedDataParallel, or on one GPU{_with_shapes(step)}"


def _rounds(step: TracedStep) -> int:
    """Count how often a backward pass ended in an optimizer step."""
    moments = [(event.start_us, False) for event in step.host if passes_back(event)]
    moments += [(event.end_us, True) for event in step.host if updates_after(event)]
    rounds, before = 0, True
    for _, updates in sorted(moments):
        rounds += updates and not before
        before = updates
    return rounds


def _without_gradients(step: TracedStep) -> str:
    exchanged = every_collective(step)
    framework = framework_of(step)
    by = f" of {framework}" if framework else ""
    beside = f"; its {collectives_in_words(exchanged)}{by} cannot be tied to any" if exchanged else ""
    by_graph = sum("GraphLaunch" in operation.gpu.call.name for operation in step.operations)
    if by_graph:
        return (
            f"no gradients: {by_graph} of {counted(len(step.operations), 'operation')} of a step were "
            f"launched by a CUDA graph, which hides what launched them{beside}; trace without CUDA graphs"
        )
    if not any(operation.phase == Phase.BACKWARD for operation in step.operations):
        return (
            f"no gradients: its steps hold no backward pass by autograd's nodes{beside}; trace training, "
            "with PyTorch 1.8 or newer"
        )
    if is_compiled_backward(step.host):
        own = "its backward pass is compiled autograd's, which does not show them"
        return f"no gradients: {own}{beside}; {WITHOUT_IT}"
    compiled = any(_COMPILED.search(event.name) for event in step.host)
    as_compiled = "as it is compiled" if compiled else "as where it is compiled"
    return (
        f"no gradients: its backward pass holds no AccumulateGrad{beside}, {as_compiled}; trace without "
        "compiled autograd"
    )


def _differing(step: TracedStep, gradients: TracedGradients) -> str:
    sent = sum(reduction.size_bytes or 0 for reduction in step.reductions)
    own = gradients.shaped_bytes or 0
    said = (
        f"{counted(len(step.reductions), 'all-reduce')} of a step carry {mebibytes(sent)} and its "
        f"{counted(gradients.count, 'gradient')} have {mebibytes(own)}"
    )
    if sent > own and gradients.passes == 1 and any(_finds_unused(o.collective) for o in step.others):
        return ""  # The buckets also hold the gradients of parameters that were not used.
    if sent > own:
        return (
            f"{said}: something else is all-reduced with them, or gradients more than once; "
            f"{_under_ddp(step)}, without a communication hook"
        )
    return (
        f"{said}: a hook compresses them (PowerSGD), or a part is not exchanged (experts, ignored "
        f"parameters); {_under_ddp(step)}, without a communication hook"
    )


def _finds_unused(collective: TracedCollective | None) -> bool:
    """Tell whether it is DDP's map of used parameters."""
    return collective is not None and collective.hooked and collective.counts


def _unexplained(step: TracedStep, gradients: TracedGradients) -> list[TracedCollective]:
    """Collectives that stay in the step and may be what a plan would add again."""
    suspects, time_us = [], 0.0
    for operation in step.others:
        collective = operation.collective
        assert collective is not None
        beside = operation.phase != Phase.BACKWARD and operation.gpu.call.start_us > gradients.begun_us
        of_hook = collective.hooked and not collective.counts
        within = not gradients.sized and (of_hook or collective.kind == "reduce_scatter")
        if not step.exchanges or beside or within:
            suspects.append(collective)
            if collective.size_bytes is None:
                time_us += operation.gpu.end_us - operation.gpu.start_us
    size = sum(collective.size_bytes or 0 for collective in suspects)
    whole = gradients.shaped_bytes or step.reduced_bytes or 0
    reducing_us = sum(exchange.gpu.end_us - exchange.gpu.start_us for exchange in step.exchanges)
    small = size <= min(max(_SMALL_BYTES, whole * APART), whole / 2 if whole else _SMALL_BYTES)
    return [] if small and time_us <= reducing_us * _SMALL_SHARE else suspects


def _on_host(trace: Trace, step: TracedStep) -> str:
    """Calls that exchange gradients on the host, of which the GPU shows copies alone."""
    if step.exchanges or trace.world_size == 1:
        return ""
    in_kernels = {
        id(event)
        for operation in step.others
        if operation.gpu.call.host is not None
        for event in operation.gpu.call.host.chain()
    }
    calls = [event for event in step.host if id(event) not in in_kernels and _reduces_on_host(event)]
    return ", ".join(sorted({event.name for event in calls}))


def _reduces_on_host(event: HostSpan) -> bool:
    if called_on_host(event) not in (ALL_REDUCE, "reduce", "reduce_scatter"):
        return False
    message = first_tensor(event)
    return message is None or message[2] > _SMALL_BYTES
