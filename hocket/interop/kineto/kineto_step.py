"""Kineto traces as a step: what a job that was traced would gain from a plan, or from more machines.

Of one rank's trace, or several ranks' of one job. Operations are GPU operations, in the order in which
the GPU ran them in one of the steps; of the others the durations count, by the order of their launch. The
all-reduces of gradients, and the transfers of units that FSDP2 sharded, are taken out, since lowering adds
them for a network and a plan. The order of
operations (``inputs``): the operation before on the same stream, what a recorded wait of a stream or of
the host says, and, for other collectives, what was launched before and after them. With an ExecutionTrace,
the dataflow of its tensors takes the place of the order on a stream.

**Updates.** An operation on one reduced gradient alone (DDP's copies) stays itself. One that measures all
gradients (norms, finiteness) waits for all of them. The time of the other update operations is shared out
over the parameters by their bytes, because plans update a parameter as soon as its gradient has come.

**Several ranks** are more samples of the same step: column k of the durations is one step of one rank,
and workers in a simulation draw among them. Their steps are those that all ranks recorded, and their
operations, as launched, and all-reduces must agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from hocket.graph import OperationRow, ParameterRow, Phase, StepRows, step_from_rows
from hocket.graph.recorded_run import RecordedRun, RecordedUnits
from hocket.graph.unique_names import UniqueNames
from hocket.interop.imported import ImportedStep
from hocket.interop.kineto.events import Trace
from hocket.interop.kineto.execution_trace import JoinedTraces
from hocket.interop.kineto.gradients import TracedGradients
from hocket.interop.kineto.import_report import exchange_notes, gradient_notes, step_notes, unit_notes
from hocket.interop.kineto.recorded_dependencies import stream_inputs
from hocket.interop.kineto.recorded_network import RecordedNetwork, recorded_network
from hocket.interop.kineto.traced_batch import batch_size_of
from hocket.interop.kineto.traced_job import TracedJob, read_job
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.interop.kineto.traced_units import scattered_per_gathered
from hocket.interop.kineto.unit_prefetch import prefetch_lists
from hocket.network.file import network_document

_MEASURES_ALL = re.compile(r"norm|_amp_", re.IGNORECASE)


def import_kineto(
    paths: Sequence[str | Path],
    *,
    execution_trace: str | Path | None = None,
    batch_size: int | None = None,
    allow_no_gradients: bool = False,
    partial: bool = False,
) -> ImportedStep:
    """Read the traces of one job's ranks as a step.

    execution_trace : of the first trace's rank; joined by record function id.
    batch_size : examples in a step; by default what the trace says, else a guess from shapes, else 1.
    allow_no_gradients : a step whose gradients, or whose exchange of them, cannot be told comes without
        parameters, to be looked at, and a note says why; else it is refused.

    partial : files that end before their end count as far as they go, by their whole steps.

    Raises
    ------
    FormatError
        Naming the file, the event and the rule.
    """
    job = read_job(paths, execution_trace=execution_trace, partial=partial)
    return step_of(job, batch_size=batch_size, allow_no_gradients=allow_no_gradients)


def step_of(job: TracedJob, *, batch_size: int | None, allow_no_gradients: bool) -> ImportedStep:
    """The step of a job, and what was assumed; the options are those of :func:`import_kineto`.

    Raises
    ------
    FormatError
        Naming the file and the rule.
    """
    first, structure, gradients, reason = job.traces[0], job.structure, job.gradients, job.reason
    samples, notes = job.samples, list(job.notes)
    if reason:
        if not allow_no_gradients:
            first.refuse(f"{reason}; or give --allow-no-gradients, to look at the step")
        notes.append(f"without parameters, so that nothing can be planned: {reason}")
    batch, batch_note = batch_size_of(first, structure, batch_size, job.shape_of, gradients.micro_batches)
    durations = _durations(structure, samples)
    if not any(any(row) for row in durations):
        first.refuse("the GPU operations of its steps take no time; record ProfilerActivity.CUDA again")
    parameters = TracedGradients() if reason else gradients
    rows = StepRows(
        model=Path(first.source).name.split(".")[0],
        batch_size=batch,
        device=first.device,
        parameters=[
            ParameterRow(parameter.name, parameter.shape, parameter.dtype, parameter.size_bytes)
            for parameter in parameters.parameters
        ],
        operations=_rows(first, structure, durations, parameters, job.joined),
    )
    for trace, own in zip(job.traces, job.kept, strict=True):
        notes += [*trace.notes, *step_notes(trace.source, trace.device, own)]
    notes += exchange_notes(samples)
    if not reason:
        if not structure.exchanges and (first.world_size or 1) > 1:
            notes.append(f"{first.world_size} ranks trained, and no step exchanges gradients: plans add that")
        by_nodes = job.joined is not None and job.joined.gives_shapes
        notes += gradient_notes(structure, gradients, by_nodes=by_nodes)
        if job.units:
            notes += unit_notes(job.units)
    network = recorded_network(job.traces, job.kept)
    if network is not None and not reason:
        notes += network.notes
        rows = msgspec.structs.replace(rows, recorded=_recorded_run(network, job))
    return ImportedStep(step_from_rows(rows, first.source), (*notes, *batch_note))


def _recorded_run(network: RecordedNetwork, job: TracedJob) -> RecordedRun:
    """The job's workers, step and network, and what its exchanges carried, as far as that is known."""
    samples, gradients = job.samples, job.gradients
    buckets: list[list[str]] = [[] for _ in samples[0].reductions]
    for parameter in reversed(gradients.parameters):
        if parameter.bucket < len(buckets):
            buckets[parameter.bucket].append(parameter.name)
    known = bool(buckets) and all(buckets) and sum(map(len, buckets)) == len(gradients.parameters)
    return RecordedRun(
        workers=network.workers,
        step_s=median(step.elapsed_s for step in samples),
        exposed_s=median(step.waited_s for step in samples),
        reductions=tuple(map(tuple, buckets)) if known else (),
        network=None if network.file is None else network_document(network.file),
        sharded=_sharded(job) if job.units else None,
    )


def _sharded(job: TracedJob) -> RecordedUnits:
    units = job.units
    names = [unit.name for unit in units]
    return RecordedUnits(
        units=tuple(tuple(parameter.name for parameter in unit.parameters) for unit in units),
        forward_prefetch=prefetch_lists(job.structure, names, "forward"),
        backward_prefetch=prefetch_lists(job.structure, names, "backward"),
        reshard_after_forward=tuple(unit.gathered_again for unit in units),
        scattered_per_gathered=scattered_per_gathered(units),
    )


def _durations(structure: TracedStep, samples: Sequence[TracedStep]) -> list[list[float]]:
    """Of each operation of ``structure`` its seconds in every sample."""
    durations: list[list[float]] = [[] for _ in structure.operations]
    places = structure.launched()
    for sample in samples:
        for i, j in zip(places, sample.launched(), strict=True):
            durations[i].append(sample.operations[j].duration_s)
    return durations


def _rows(
    trace: Trace,
    step: TracedStep,
    durations: Sequence[list[float]],
    gradients: TracedGradients,
    joined: JoinedTraces | None,
) -> list[OperationRow]:
    names = UniqueNames()
    of_main = {i: names.take(o.name) for i, o in enumerate(step.operations) if o.phase != Phase.UPDATE}
    inputs = stream_inputs(trace, step)
    if joined is not None:
        inputs |= joined.inputs(step)
    rows = [
        OperationRow(
            name,
            step.operations[i].phase.name.lower(),  # type: ignore[arg-type]
            durations[i],
            [of_main[j] for j in sorted(inputs.get(i, ())) if j in of_main],
            [],
            [],
        )
        for i, name in of_main.items()
    ]
    row_of = dict(zip(of_main, rows, strict=True))
    for parameter in gradients.parameters:
        for i in parameter.readers:
            row_of[i].reads.append(parameter.name)
        if parameter.producer is not None:
            row_of[parameter.producer].produces.append(parameter.name)
    return [*rows, *_updates(step, durations, gradients, row_of, names)]


def _updates(
    step: TracedStep,
    durations: Sequence[list[float]],
    gradients: TracedGradients,
    row_of: dict[int, OperationRow],
    names: UniqueNames,
) -> list[OperationRow]:
    every = [i for i, operation in enumerate(step.operations) if operation.phase == Phase.UPDATE]

    def row(i: int, inputs: list[str], reads: list[str]) -> OperationRow:
        return OperationRow(names.take(step.operations[i].name), "update", durations[i], inputs, reads, [])

    rows: list[OperationRow] = []
    if not gradients.parameters:
        for i in every:
            before = rows[-1:] or list(row_of.values())[-1:]
            rows.append(row(i, [other.name for other in before], []))
        return rows
    last_of: dict[str, str] = {}
    trained = [parameter for parameter in gradients.parameters if parameter.producer is not None]
    for parameter in trained:
        assert parameter.producer is not None
        last_of[parameter.name] = row_of[parameter.producer].name
        for i in parameter.copies:
            rows.append(row(i, [last_of[parameter.name]], [parameter.name]))
            last_of[parameter.name] = rows[-1].name
    copies = {i for parameter in gradients.parameters for i in parameter.copies}
    of_all: list[str] = []
    shared = []
    for i in every:
        if i in copies:
            continue
        if _MEASURES_ALL.search(step.operations[i].name):
            before_all = of_all or list(dict.fromkeys(last_of.values()))
            rows.append(row(i, before_all, [parameter.name for parameter in trained]))
            of_all = [rows[-1].name]
        else:
            shared.append(i)
    totals = [sum(of_sample) for of_sample in zip(*(durations[i] for i in shared), strict=True)]
    total_bytes = sum(parameter.size_bytes for parameter in trained)
    for parameter in trained if shared else ():
        share = parameter.size_bytes / total_bytes if total_bytes else 1 / len(trained)
        rows.append(
            OperationRow(
                names.take(f"update/{parameter.name}"),
                "update",
                [total * share for total in totals],
                list(dict.fromkeys([last_of[parameter.name], *of_all])),
                [parameter.name],
                [],
            )
        )
    return rows
