"""The computing of a sharded step, cut at the moments at which its units begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from hocket.runtime.sharding.shard_events import StepEvents

Phase = Literal["forward", "backward", "update"]


class ComputingPiece(NamedTuple):
    """A part of a step's computing: of ``unit`` in a pass, None for what is of no unit.

    ``completes``: whether the gradients of ``unit`` are there at its end; ``busy``: when it computes.
    """

    phase: Phase
    unit: int | None
    completes: bool
    busy: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        """Seconds that it computes."""
        return sum(end_s - begin_s for begin_s, end_s in self.busy)

    def shown(self, names: Sequence[str]) -> str:
        """Its name in a timeline; ``names``: of all units."""
        return f"{self.phase} {'the rest' if self.unit is None else names[self.unit]}"


def pieces_of(step: StepEvents) -> list[ComputingPiece]:
    """The computing of ``step`` in its order, without waits.

    A piece that ends with "leave" is a unit's forward pass, with "computed" its backward pass. One that ends
    as another unit begins is of the one that has that within, if any has. Pieces behind the backward pass,
    clipping and the like, are the optimizer's.
    """
    pieces: list[ComputingPiece] = []
    inside: list[int] = []
    begin_s = step.begin_s
    for cut in step.cuts:
        updates = cut.what in ("update", "updated")
        phase: Phase = "update" if updates else "backward" if cut.backward else "forward"
        begins = cut.what in ("enter", "gathered")
        unit = cut.unit if not begins else inside[-1] if inside else None
        pieces.append(ComputingPiece(phase, unit, cut.what == "computed", _busy(step, begin_s, cut.at_s)))
        begin_s = cut.at_s
        if cut.what == "enter" and cut.unit is not None:
            inside.append(cut.unit)
        elif cut.what == "leave" and inside:
            inside.pop()
    return pieces


def _busy(step: StepEvents, begin_s: float, end_s: float) -> tuple[tuple[float, float], ...]:
    """The parts of an interval outside of waits."""
    edges = [begin_s]
    for wait in step.waits:
        if wait.end_s > begin_s and wait.begin_s < end_s:
            edges += [max(wait.begin_s, begin_s), min(wait.end_s, end_s)]
    edges.append(end_s)
    return tuple((a, b) for a, b in list(pairwise(edges))[::2] if b > a)
