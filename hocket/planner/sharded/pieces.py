"""Pieces that units are made of: whole blocks of a model in forward order, and the rest.

A block is a numbered module, such as ``layers.0``. Parameters in no block are one unit, the root's, as in
FSDP2. A model without blocks is cut at the modules that hold parameters. Modules that are used while others
run (an embedding that the head uses, too) belong to the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.module_names import block_of, module_of


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """``blocks``: parameter names of each, in the order of first reads; ``rest``: of all others."""

    blocks: tuple[tuple[str, ...], ...]
    rest: tuple[str, ...]

    @classmethod
    def of(cls, graph: StepGraph) -> Pieces:
        """The pieces of ``graph``."""
        by_block = _grouped(graph, block_of)
        found = by_block if by_block.keys() - {""} else _grouped(graph, module_of)
        first = dict(zip(graph.parameter_names, graph.first_reader().tolist(), strict=True))
        last = _last_readers(graph)
        rest = found.pop("", [])
        blocks: list[tuple[str, ...]] = []
        ended = -1
        for names in sorted(found.values(), key=lambda names: min(first[name] for name in names)):
            if min(first[name] for name in names) < ended:
                rest += names
                continue
            blocks.append(tuple(names))
            ended = max(ended, *(last[name] for name in names))
        return cls(blocks=tuple(blocks), rest=tuple(rest))


def _grouped(graph: StepGraph, key: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in graph.parameter_names:
        found.setdefault(key(name), []).append(name)
    return found


def _last_readers(graph: StepGraph) -> dict[str, int]:
    """Of each parameter the position of its last reader in the forward pass, -1 without one."""
    position = np.empty(graph.num_operations, np.int64)
    position[graph.order] = np.arange(graph.num_operations)
    reader = graph.reads.row_of_entry()
    forward = graph.phases[reader] == 0
    last = np.full(graph.num_parameters, -1)
    np.maximum.at(last, graph.reads.indices[forward], position[reader[forward]])
    return dict(zip(graph.parameter_names, last.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class UnitChoice:
    """A plan as a planner changes it.

    ``cuts``: of a row of L blocks, the numbers 1 to L - 1 before which a unit begins; ``kept``: the units of
    blocks that are not resharded after their forward pass; ``keeps_rest``: the rest is not, either;
    ``forward``, ``backward``: how many units ahead are gathered in each pass, None for torch's own way.
    """

    cuts: tuple[int, ...]
    kept: frozenset[int] = frozenset()
    keeps_rest: bool = True
    forward: int | None = None
    backward: int | None = None

    def spans(self, num_blocks: int) -> list[tuple[int, int]]:
        """The blocks of each unit, from and to."""
        return list(pairwise((0, *self.cuts, num_blocks))) if num_blocks else []


def plan_of_choice(graph: StepGraph, pieces: Pieces, choice: UnitChoice, policy: str) -> Plan:
    """The plan that ``choice`` is."""
    units = [
        (tuple(name for block in pieces.blocks[a:b] for name in block), k not in choice.kept)
        for k, (a, b) in enumerate(choice.spans(len(pieces.blocks)))
    ]
    if pieces.rest:
        units.append((pieces.rest, not choice.keeps_rest))
    first = dict(zip(graph.parameter_names, graph.first_reader().tolist(), strict=True))
    units.sort(key=lambda unit: min(first[name] for name in unit[0]))
    count = len(units)
    return Plan(
        policy=policy,
        model=graph.model,
        architecture="fsdp",
        units=tuple(names for names, _ in units),
        forward_prefetch=ahead(range(count), choice.forward),
        backward_prefetch=ahead(range(count)[::-1], choice.backward),
        reshard_after_forward=tuple(reshards for _, reshards in units),
        compute_order=None,
    )


def choice_of_units(pieces: Pieces, plan: Plan) -> UnitChoice | None:
    """The choice of the units of ``plan``, one ahead and resharded; None where they are not of blocks."""
    number = {block[0]: k for k, block in enumerate(pieces.blocks)}
    begins = sorted(number[unit[0]] for unit in plan.units if unit[0] in number)
    choice = UnitChoice(cuts=tuple(begins[1:]), forward=1, backward=1)
    blocks = [
        tuple(name for block in pieces.blocks[a:b] for name in block)
        for a, b in choice.spans(len(pieces.blocks))
    ]
    found = {unit for unit in plan.units if unit != pieces.rest}
    return choice if found == set(blocks) else None


def ahead(order: Sequence[int], count: int | None) -> tuple[tuple[int, ...], ...] | None:
    """For each unit the next ``count`` of ``order``, in which they run; None for torch's own way."""
    if count is None:
        return None
    place = {unit: k for k, unit in enumerate(order)}
    return tuple(tuple(order[place[unit] + 1 : place[unit] + 1 + count]) for unit in range(len(order)))
