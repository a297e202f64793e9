"""Searches for units, resharding and prefetch under a limit of memory: by neighbours, or of all choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import comb

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.planner.sharded.pieces import Pieces, UnitChoice, plan_of_choice

Cost = tuple[float, float]
"""Bytes beyond the limit, and seconds: less is better."""
_AHEAD = (None, 1, 2, 3)
_LARGEST_EXACT = 6_000


@dataclass
class Judge:
    """The cost of choices, each judged once; ``cost_of``: of a plan."""

    graph: StepGraph
    pieces: Pieces
    cost_of: Callable[[Plan], Cost]

    def __post_init__(self) -> None:
        self.known: dict[UnitChoice, Cost] = {}

    def cost(self, choice: UnitChoice) -> Cost:
        """The cost of ``choice``."""
        if choice not in self.known:
            self.known[choice] = self.cost_of(self.plan(choice, ""))
        return self.known[choice]

    def plan(self, choice: UnitChoice, policy: str) -> Plan:
        """The plan of ``choice``."""
        return plan_of_choice(self.graph, self.pieces, choice, policy)


def even_cuts(num_blocks: int, size: int) -> tuple[int, ...]:
    """Cuts into units of so many blocks, the last one of what is left."""
    return tuple(range(size, num_blocks, size))


def search(judge: Judge, known: Sequence[UnitChoice], *, seed: int, budget_s: float) -> UnitChoice:
    """The best choice that steps to neighbours find from even units, and from ``known`` ones, in a budget."""
    begins = time.perf_counter()
    draw = np.random.default_rng(seed)
    starts = [
        min(choices, key=judge.cost)
        for choices in (list(_starts(len(judge.pieces.blocks))), known)
        if choices
    ]
    found = [
        _descend(judge, start, draw, begins + budget_s * (k + 1) / len(starts))
        for k, start in enumerate(starts)
    ]
    return min(found, key=judge.cost)


def _descend(judge: Judge, start: UnitChoice, draw: np.random.Generator, ends: float) -> UnitChoice:
    """The best choice that steps to neighbours find from ``start``, until a moment of the clock."""
    best = start
    fruitless, patience = 0, 40 + 12 * len(judge.pieces.blocks)
    while time.perf_counter() < ends and fruitless < patience:
        other = _neighbour(best, len(judge.pieces.blocks), draw)
        if draw.random() < 0.3:
            other = _neighbour(other, len(judge.pieces.blocks), draw)
        fruitless += 1
        if judge.cost(other) < judge.cost(best):
            best, fruitless = other, 0
    return best


def _starts(num_blocks: int) -> Iterator[UnitChoice]:
    sizes = [size for size in (1, 2, 3, 4, 6, 8, 16) if size == 1 or size < num_blocks]
    for size, forward in product(sizes, (None, 1, 2)):
        cuts = even_cuts(num_blocks, size)
        count = len(cuts) + 1
        for kept in sorted({0, 1, count // 4, count // 2, count}):
            some = frozenset(range(count - kept, count))
            yield UnitChoice(cuts=cuts, kept=some, forward=forward, backward=forward)
    yield UnitChoice(cuts=even_cuts(num_blocks, 1), keeps_rest=False)


def _neighbour(choice: UnitChoice, num_blocks: int, draw: np.random.Generator) -> UnitChoice:
    """``choice`` changed in one thing."""
    move = int(draw.integers(7))
    if move <= 2 and num_blocks > 1:
        cut = int(draw.integers(1, num_blocks))
        if move == 0 or not choice.cuts:
            return _with_cuts(choice, set(choice.cuts) ^ {cut})
        old = int(draw.choice(choice.cuts))
        new = old + int(draw.choice((-1, 1)))
        if move == 1 and 0 < new < num_blocks:
            return _with_cuts(choice, (set(choice.cuts) - {old}) | {new})
        return _with_cuts(choice, set(choice.cuts) - {old})
    if move == 3:
        return replace(choice, forward=_AHEAD[int(draw.integers(len(_AHEAD)))])
    if move == 4:
        return replace(choice, backward=_AHEAD[int(draw.integers(len(_AHEAD)))])
    if move == 5 and draw.random() < 0.2:
        return replace(choice, keeps_rest=not choice.keeps_rest)
    unit = int(draw.integers(len(choice.cuts) + 1))
    return replace(choice, kept=choice.kept ^ {unit})


def _with_cuts(choice: UnitChoice, cuts: set[int]) -> UnitChoice:
    """Other cuts, and of the units kept those that begin where one did that was kept."""
    begins = [0, *choice.cuts]
    kept = {begins[unit] for unit in choice.kept if unit < len(begins)}
    ordered = tuple(sorted(cuts))
    return replace(
        choice, cuts=ordered, kept=frozenset(k for k, at in enumerate((0, *ordered)) if at in kept)
    )


def num_choices(num_blocks: int) -> int:
    """The number of choices: of units, of those kept, and of one to three ahead or torch's own way."""
    blocks = max(num_blocks, 1)
    units: int = sum(comb(blocks - 1, cuts) * 2 ** (cuts + 1) for cuts in range(blocks))
    return 2 * units * len(_AHEAD) ** 2


def is_enumerable(num_blocks: int) -> bool:
    """Tell whether all choices can be judged."""
    return num_choices(num_blocks) <= _LARGEST_EXACT


def enumerate_all(judge: Judge, *, budget_s: float) -> tuple[UnitChoice, bool]:
    """The best of all choices, and whether all were judged in ``budget_s`` seconds."""
    ends = time.perf_counter() + budget_s
    num_blocks = len(judge.pieces.blocks)
    best = min(_starts(num_blocks), key=judge.cost)
    for choice in _all(num_blocks):
        if judge.cost(choice) < judge.cost(best):
            best = choice
        if time.perf_counter() > ends:
            return best, False
    return best, True


def _all(num_blocks: int) -> Iterator[UnitChoice]:
    for count in range(max(num_blocks, 1)):
        for cuts in combinations(range(1, num_blocks), count):
            for kept in product((False, True), repeat=count + 1 if num_blocks else 0):
                some = frozenset(k for k, is_kept in enumerate(kept) if is_kept)
                for keeps_rest, forward, backward in product((True, False), _AHEAD, _AHEAD):
                    yield UnitChoice(
                        cuts=cuts, kept=some, keeps_rest=keeps_rest, forward=forward, backward=backward
                    )
