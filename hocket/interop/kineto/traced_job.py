"""A job that was traced: its ranks' traces, the steps that count of each, and what a step trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket.interop.kineto.events import Trace
from hocket.interop.kineto.exchange_checks import why_not_planned
from hocket.interop.kineto.execution_trace import JoinedTraces, join, read_execution_trace
from hocket.interop.kineto.gradients import TracedGradients, find_gradients
from hocket.interop.kineto.rank_samples import steps_alike
from hocket.interop.kineto.tensors import ShapeOf, first_tensor
from hocket.interop.kineto.trace_file import read_trace
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.interop.kineto.traced_units import TracedUnit, find_units


@dataclass(frozen=True, kw_only=True)
class TracedJob:
    """The traces of one job's ranks, the steps that count of each, and what the first one trains.

    ``structure``: the step that gives operations and edges; ``joined``: its ExecutionTrace; ``units``: of a
    sharded step; ``reason``: why nothing can be planned for it, empty where it can.
    """

    traces: list[Trace]
    kept: list[list[TracedStep]]
    structure: TracedStep
    joined: JoinedTraces | None
    gradients: TracedGradients
    units: list[TracedUnit]
    reason: str
    notes: tuple[str, ...]

    @property
    def samples(self) -> list[TracedStep]:
        """The steps of all ranks, one rank after another."""
        return [step for own in self.kept for step in own]

    @property
    def shape_of(self) -> ShapeOf:
        """The function that tells an operator's first argument."""
        return first_tensor if self.joined is None else self.joined.shape_of


def read_job(
    paths: Sequence[str | Path], *, execution_trace: str | Path | None = None, partial: bool = False
) -> TracedJob:
    """Read the traces of one job's ranks, the first of which gives the structure.

    execution_trace : of the first trace's rank; joined by record function id.
    partial : files that end before their end count as far as they go, by their whole steps.

    Raises
    ------
    FormatError
        Naming the file, the event and the rule.
    """
    joins = execution_trace is not None
    traces = [read_trace(path, partial=partial, function_ids=joins) for path in paths]
    kept, notes = steps_alike(traces)
    structure, joined = kept[0][0], None
    if execution_trace is not None:
        joined = join(read_execution_trace(execution_trace), traces[0], kept[0])
        structure = joined.step
        notes.append(joined.note)
    shape_of = first_tensor if joined is None else joined.shape_of
    units: list[TracedUnit] = []
    if structure.transfers:
        gradients, units = find_units(structure, shape_of)
    else:
        gradients = find_gradients(structure, shape_of)
    return TracedJob(
        traces=traces,
        kept=kept,
        structure=structure,
        joined=joined,
        gradients=gradients,
        units=units,
        reason=why_not_planned(traces[0], structure, gradients),
        notes=tuple(notes),
    )
