"""The step of a sharded model as a graph for planners: a chain of the computing between units' moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch

from hocket.graph import OperationRow, Plan, StepGraph, StepRows, step_from_rows
from hocket.runtime.observe.step_rows import parameter_rows, unused_row
from hocket.runtime.sharding.computing_pieces import ComputingPiece, Phase, pieces_of
from hocket.runtime.sharding.shard_events import StepEvents

_Kinds: TypeAlias = tuple[tuple[Phase, int | None, bool], ...]


def graph_of(
    steps: Sequence[StepEvents], model: torch.nn.Module, plan: Plan, ranks: int, batch_size: int = 1
) -> StepGraph | None:
    """The step that ``steps`` under ``plan`` show, of those that did the same; None where there is none.

    Each operation has as many durations as there were such steps. Updates take ``ranks`` times as long as
    they did: a step's are of whole parameters, and these were of shards.
    """
    cut = [pieces_of(step) for step in steps]
    kinds = [tuple((piece.phase, piece.unit, piece.completes) for piece in pieces) for pieces in cut]
    if not kinds or not any(completes for _, _, completes in kinds[-1]):
        return None
    alike = [pieces for pieces, kind in zip(cut, kinds, strict=True) if kind == kinds[-1]]
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    units = [[name for name in unit if name in parameters] for unit in plan.units]
    rows = StepRows(
        model=type(model).__name__,
        batch_size=batch_size,
        device="cpu",
        parameters=parameter_rows(_whole(parameters)),
        operations=_operations(alike, units, kinds[-1], ranks),
    )
    return step_from_rows(rows)


def _whole(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of the whole parameters' shapes, without memory."""
    return {name: torch.empty(p.shape, dtype=p.dtype, device="meta") for name, p in parameters.items()}


def _operations(
    alike: Sequence[Sequence[ComputingPiece]], units: Sequence[Sequence[str]], kinds: _Kinds, ranks: int
) -> list[OperationRow]:
    """The chain, with reads where a unit first computes in a pass, and gradients where they are complete."""
    rows: list[OperationRow] = []
    completed = {unit for _, unit, completes in kinds if completes}
    missing = [name for k, unit in enumerate(units) if k not in completed for name in unit]
    told: set[str] = set()
    last: list[str] = []
    for number, (phase, unit, completes) in enumerate(kinds):
        if phase == "update" and missing:
            rows.append(unused_row(last[0], missing))
            missing, last = [], ["unused"]
        name = f"{phase} {number}"
        reads = [] if unit is None or phase == "update" else list(units[unit])
        produces = [] if unit is None or not completes else [n for n in units[unit] if n not in told]
        told.update(produces)
        times = ranks if phase == "update" else 1
        seconds = [times * pieces[number].seconds for pieces in alike]
        rows.append(OperationRow(name, phase, seconds, last, reads, produces))
        last = [name]
    return rows
