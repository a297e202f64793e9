"""The plan that FSDP's users have by hand: a unit a block, prefetched as torch does by itself."""

from __future__ import annotations

from torch import nn

from hocket.graph import Plan
from hocket.runtime.sharding.module_tree import ModuleTree, blocks_of, outside_names, unit_names

POLICY = "fsdp"


def default_plan(model: nn.Module, workers: int, *, beside: bool = False) -> Plan:
    """A unit for each block of ``model``, and one of the root for what is left, which stays gathered.

    ``beside``: the next unit is listed for each in the forward pass. On a GPU torch gathers it meanwhile all
    the same, as the program runs ahead; where nothing runs ahead it has to be asked for.
    """
    tree, blocks = ModuleTree(model), blocks_of(model)
    units = unit_names(tree, blocks)
    outside = outside_names(tree, blocks)
    return Plan(
        policy=POLICY,
        model=type(model).__name__,
        architecture="fsdp",
        units=tuple(units),
        forward_prefetch=_next_ones(len(units)) if beside else None,
        reshard_after_forward=tuple(outside.isdisjoint(unit) for unit in units),
        compute_order=None,
        workers=workers,
    )


def _next_ones(count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((k + 1,) if k + 1 < count else () for k in range(count))
