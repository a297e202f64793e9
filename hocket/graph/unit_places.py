"""Places of units in a step: where a worker's operations first need each, and where they are done with it.

A worker runs its operations in the program's order: those of the forward pass, of the backward pass, and
updates. Place k is the moment before operation k of the first two; updates come behind the last place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hocket.graph.csr import Indices
from hocket.graph.step import Phase, StepGraph


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramOrder:
    """The order in which a worker runs the operations of a step.

    ``operations`` (n,): those of the forward and backward passes; ``turn``: the place where the backward pass
    begins; ``updates``: the others.
    """

    operations: Indices
    turn: int
    updates: Indices

    @classmethod
    def of(cls, graph: StepGraph) -> ProgramOrder:
        """The order of ``graph``: by phase, and within one as the program ran."""
        phases = graph.phases[graph.order]
        forward, backward, updates = (graph.order[phases == phase] for phase in Phase)
        return cls(operations=np.concatenate((forward, backward)), turn=len(forward), updates=updates)


@dataclass(frozen=True, kw_only=True)
class UnitPlaces:
    """The places of one unit, and its bytes.

    ``forward``: its first reader of the forward pass, and behind the last one; ``backward``: the same of what
    reads it or completes its gradients in the backward pass, None where nothing does; ``gathered_bytes``: of
    its parameters; ``scattered_bytes``: of those that are trained.
    """

    forward: tuple[int, int]
    backward: tuple[int, int] | None
    gathered_bytes: int
    scattered_bytes: int


def _scattered(graph: StepGraph) -> float:
    """Bytes of a gradient for each byte of its parameter: other than 1 where a recorded job had two types."""
    sharded = None if graph.recorded is None else graph.recorded.sharded
    return 1.0 if sharded is None else sharded.scattered_per_gathered


class ParameterPlaces:
    """The places of each parameter, from which those of any unit follow."""

    def __init__(self, graph: StepGraph) -> None:
        order = ProgramOrder.of(graph)
        self.order = order
        num_places, p = len(order.operations), graph.num_parameters
        place = np.full(graph.num_operations, -1, np.int64)
        place[order.operations] = np.arange(num_places)
        self._forward, self._backward = (np.full((p, 2), (num_places, -1)) for _ in range(2))
        for relation in (graph.reads, graph.produces):
            at, parameter = place[relation.row_of_entry()], relation.indices
            made = relation is graph.produces
            early = (at >= 0) & (at < order.turn) & (not made)
            self._note(self._forward, parameter[early], at[early])
            # A gradient that a forward operation completes leaves when the backward pass begins.
            late = (at >= order.turn) | (made & (at >= 0))
            self._note(self._backward, parameter[late], np.maximum(at[late], order.turn))
        self._bytes = graph.parameter_bytes
        self._trained_bytes = np.where(graph.produced, graph.parameter_bytes * _scattered(graph), 0).astype(
            np.int64
        )
        self._index = {name: i for i, name in enumerate(graph.parameter_names)}
        self._known: dict[tuple[str, ...], UnitPlaces] = {}

    @staticmethod
    def _note(places: Indices, parameters: Indices, at: Indices) -> None:
        np.minimum.at(places[:, 0], parameters, at)
        np.maximum.at(places[:, 1], parameters, at + 1)

    def of(self, unit: tuple[str, ...]) -> UnitPlaces:
        """The places of a unit of these parameters; unread ones are gathered as the forward pass ends."""
        if unit not in self._known:
            self._known[unit] = self._found(unit)
        return self._known[unit]

    def _found(self, unit: tuple[str, ...]) -> UnitPlaces:
        members = np.array([self._index[name] for name in unit])
        forward, backward = self._forward[members], self._backward[members]
        first, last, turn = int(forward[:, 0].min()), int(forward[:, 1].max()), self.order.turn
        needed = int(backward[:, 1].max()) >= 0
        last_place = len(self.order.operations)
        return UnitPlaces(
            forward=(first, last) if last >= 0 else (turn, turn),
            backward=(min(int(backward[:, 0].min()), last_place), min(int(backward[:, 1].max()), last_place))
            if needed
            else None,
            gathered_bytes=int(self._bytes[members].sum()),
            scattered_bytes=int(self._trained_bytes[members].sum()),
        )

    def first_reads(self) -> list[tuple[int, int]]:
        """Places of the forward pass that read a parameter first, and the bytes read there or before."""
        first = np.where(self._forward[:, 1] >= 0, self._forward[:, 0], self.order.turn)
        places = np.unique(first)
        return [(int(place), int(self._bytes[first <= place].sum())) for place in places]

    def last_gradients(self) -> list[tuple[int, int]]:
        """Places behind which a gradient is complete, and the bytes of those complete there or later."""
        last = np.minimum(self._backward[:, 1], len(self.order.operations))
        places = np.unique(last[self._trained_bytes > 0])
        return [(int(place), int(self._trained_bytes[last >= place].sum())) for place in places]

    def backward_bytes(self) -> int:
        """Bytes of the parameters that the backward pass needs."""
        return int(self._bytes[self._backward[:, 1] >= 0].sum())
