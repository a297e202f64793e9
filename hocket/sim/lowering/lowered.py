"""The program that both architectures lower to, and the pieces that their lowerings share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.timeline import Kind
from hocket.kernel import kernel
from hocket.network import Network
from hocket.sim.loop.step_program import StepProgram

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class TimelineNode(NamedTuple):
    """A node's appearance in a timeline; ``lane`` is a name within its worker, server or the network."""

    node: int
    name: str
    kind: Kind
    lane: str


class HeldChange(NamedTuple):
    """Memory that a worker takes, or gives back, when a node begins or ends; node -1: the step's begin."""

    node: int
    begins: bool
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A step, its plan and its network as the kernel runs them.

    ``preference`` (L,): which ready local node a lane takes first, the least; ``durations_s`` (samples, n) of
    the worker's operations and ``global_durations_s`` (samples, d) of global nodes with a lane;
    ``communication_s``: N, for how long transfers occupy what they occupy longest; ``occupied_s``: what of
    it, and of parsing at servers, no step can be shorter than, ``occupied_apart_s``: if each worker pulls in
    an order of its own; ``parse_s``: for how long a worker's processor parses; ``done_node``: the local node
    that ends with a worker's step, where steps overlap; -1 where each starts with everything at rest;
    ``drawn_places`` and ``drawn_group``: local places whose preference a random policy draws, and what they
    are drawn by (the parts of a batch together); ``num_events``: what of a step of W workers takes a lane:
    operations, transfers, parsing; ``held``: changes of a worker's memory, where they are known.
    """

    graph: StepGraph
    network: Network
    program: StepProgram
    preference: Indices
    durations_s: Floats
    global_durations_s: Floats
    communication_s: float
    occupied_s: float
    occupied_apart_s: float
    parse_s: float
    done_node: int
    drawn_places: Indices
    drawn_group: Indices
    timeline_nodes: tuple[TimelineNode, ...]
    held: tuple[HeldChange, ...] = ()

    @property
    def num_locals(self) -> int:
        """Local nodes of a step (L)."""
        return len(self.program.lane) - self.program.num_globals

    def num_items(self, num_workers: int) -> int:
        """Items of one step of ``num_workers`` (S)."""
        return self.program.num_globals + num_workers * self.num_locals

    def num_events(self, num_workers: int) -> int:
        """Operations and transfers of one step of ``num_workers``, and the parsing of messages."""
        u = self.program.num_globals
        return int((self.program.lane[:u] >= 0).sum() + num_workers * (self.program.lane[u:] >= 0).sum())


@kernel
def rows_of(sources, targets, num_nodes):
    """The targets of each source, as row pointers (num_nodes + 1,) and entries; duplicates stay."""
    indptr = np.zeros(num_nodes + 1, np.int64)
    for source in sources:
        indptr[source + 1] += 1
    for node in range(num_nodes):
        indptr[node + 1] += indptr[node]
    place = indptr[:-1].copy()
    indices = np.empty(len(targets), np.int64)
    for e in range(len(targets)):
        indices[place[sources[e]]] = targets[e]
        place[sources[e]] += 1
    return indptr, indices


class Edges:
    """Pairs (node, node that waits for it), collected in arrays."""

    def __init__(self) -> None:
        self._sources: list[Indices] = [np.zeros(0, np.int64)]
        self._targets: list[Indices] = [np.zeros(0, np.int64)]

    def add(self, sources: Indices | int, targets: Indices | int) -> None:
        """Add pairs; a single number stands for as many as the other side has."""
        paired = np.broadcast_arrays(np.asarray(sources, np.int64), np.asarray(targets, np.int64))
        self._sources.append(paired[0].ravel())
        self._targets.append(paired[1].ravel())

    def arrays(self) -> tuple[Indices, Indices]:
        """All sources, and all targets."""
        return np.concatenate(self._sources), np.concatenate(self._targets)


def ends_of(graph: StepGraph, among: Mask) -> tuple[Indices, Indices]:
    """Of the operations ``among`` (n,), those that no other one uses, and those that use no other one."""
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    inside = among[user] & among[source]
    last, first = among.copy(), among.copy()
    last[source[inside]] = False
    first[user[inside]] = False
    return np.flatnonzero(last), np.flatnonzero(first)


def computing_order(plan: Plan, graph: StepGraph, ops: Indices) -> tuple[Indices, Indices]:
    """The rank of each of ``ops`` (indices of operations), and the strict sequence of them, empty if free.

    Raises
    ------
    HocketError
        When the plan's order leaves out an operation that others wait for.
    """
    if plan.compute_order is None:
        return np.arange(len(ops)), np.zeros(0, np.int64)
    position = {name: k for k, name in enumerate(plan.compute_order)}
    places = np.empty(len(ops), np.int64)
    for k, op in enumerate(ops.tolist()):
        name = graph.operation_names[op]
        if name not in position:
            raise HocketError(
                f"plan: compute_order: '{name}' is missing, and other operations wait for it; list it"
            )
        places[k] = position[name]
    sequence = np.argsort(places, kind="stable")
    rank = np.empty(len(ops), np.int64)
    rank[sequence] = np.arange(len(ops))
    return rank, sequence
