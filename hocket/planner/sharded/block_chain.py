"""Blocks that run one after the other, and in reverse in the backward pass: what the exact units are of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.step import Seconds
from hocket.graph.unit_places import ParameterPlaces, UnitPlaces
from hocket.planner.sharded.pieces import Pieces


@dataclass(frozen=True, eq=False, kw_only=True)
class RestOfChain:
    """The unit of what is in no block, before all blocks or behind them.

    ``leads``: before them; ``gradients``: complete "late", behind all blocks' backward passes, "early",
    before them, or never; ``at_s``: computing before its first reader; ``back_s``: before its backward pass
    begins, and before it ends.
    """

    leads: bool
    gradients: Literal["late", "early", "never"]
    at_s: float
    back_s: tuple[float, float]
    gathered_bytes: int
    scattered_bytes: int


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockChain:
    """A step whose L blocks follow one another.

    Seconds are those of computing since the step began, without waits. ``forward_s`` (L + 1,): before each
    block, and where all have computed; ``begins_s``, ``ends_s`` (L,): where the backward pass of each begins
    and ends; ``turn_s``, ``end_s``: where that of the step does; ``gathered``, ``scattered`` (L,): bytes.
    """

    forward_s: Seconds
    begins_s: Seconds
    ends_s: Seconds
    turn_s: float
    end_s: float
    gathered: np.ndarray
    scattered: np.ndarray
    rest: RestOfChain | None

    @classmethod
    def of(cls, graph: StepGraph, pieces: Pieces) -> BlockChain:
        """The chain of ``pieces``, with the mean of measured times.

        Raises
        ------
        HocketError
            When blocks do not follow one another, one is not trained, or the rest begins among them.
        """
        found = ParameterPlaces(graph)
        order = found.order
        blocks = [found.of(names) for names in pieces.blocks]
        _check_blocks(blocks, order.turn)
        before_s = np.concatenate(([0.0], graph.durations_s[order.operations].mean(axis=1).cumsum()))
        first = dict(zip(graph.parameter_names, graph.first_reader().tolist(), strict=True))
        rest = None
        if pieces.rest:
            begins = min(first[name] for name in pieces.rest)
            leads = begins < min(first[name] for name in pieces.blocks[0])
            if not leads and begins < min(first[name] for name in pieces.blocks[-1]):
                raise _refused("what is in no block is first read among them")
            rest = _rest(found.of(pieces.rest), blocks, before_s, leads=leads)
        computed = rest.at_s if rest is not None and not rest.leads else before_s[order.turn]
        return cls(
            forward_s=np.array([*(before_s[block.forward[0]] for block in blocks), computed]),
            begins_s=np.array([before_s[_back(block)[0]] for block in blocks]),
            ends_s=np.array([before_s[_back(block)[1]] for block in blocks]),
            turn_s=float(before_s[order.turn]),
            end_s=float(before_s[-1]),
            gathered=np.array([block.gathered_bytes for block in blocks], np.int64),
            scattered=np.array([block.scattered_bytes for block in blocks], np.int64),
            rest=rest,
        )


def is_chain(graph: StepGraph, pieces: Pieces | None = None) -> bool:
    """Tell whether ``pieces``, by default the blocks of ``graph``, follow one another, or there are none."""
    pieces = pieces or Pieces.of(graph)
    try:
        if pieces.blocks:
            BlockChain.of(graph, pieces)
    except HocketError:
        return False
    return True


def _check_blocks(blocks: list[UnitPlaces], turn: int) -> None:
    if any(block.backward is None or not block.scattered_bytes for block in blocks):
        raise _refused("a block is not trained")
    if any(block.forward[0] >= turn for block in blocks):
        raise _refused("the forward pass does not read a block")
    for one, other in pairwise(blocks):
        if one.forward[1] > other.forward[0] or _back(other)[1] > _back(one)[0]:
            raise _refused("its blocks do not run one after the other, and in reverse in the backward pass")


def _rest(rest: UnitPlaces, blocks: list[UnitPlaces], before_s: Seconds, *, leads: bool) -> RestOfChain:
    if not leads and rest.forward[0] < blocks[-1].forward[1]:
        raise _refused("what is in no block is first read while the last block runs")
    gradients: Literal["late", "early", "never"] = "never"
    if rest.backward is not None:
        early = rest.backward[1] <= _back(blocks[-1])[0]
        if not early and not (leads and rest.backward[1] >= _back(blocks[0])[1]):
            raise _refused("gradients of what is in no block are complete while blocks run backward")
        gradients = "early" if early else "late"
    begins, ends = rest.backward or (0, 0)
    return RestOfChain(
        leads=leads,
        gradients=gradients,
        at_s=float(before_s[rest.forward[0]]),
        back_s=(float(before_s[begins]), float(before_s[ends])),
        gathered_bytes=rest.gathered_bytes,
        scattered_bytes=rest.scattered_bytes,
    )


def _back(block: UnitPlaces) -> tuple[int, int]:
    assert block.backward is not None
    return block.backward


def _refused(why: str) -> HocketError:
    return HocketError(f"policy 'fsdp-ibatch' plans steps whose blocks follow one another: {why}; search")
