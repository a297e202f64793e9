"""What all ranks have to agree on before gradients are summed up: the model and the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _broadcast_coalesced

from hocket.errors import HocketError
from hocket.graph import Plan

T = TypeVar("T")


def check_same_model(parameters: Mapping[str, torch.nn.Parameter], group: dist.ProcessGroup) -> None:
    """Refuse models that differ between ranks, on all of them.

    Raises
    ------
    HocketError
        Naming the first parameter that differs, and the ranks.
    """
    mine = [f"{name} {tuple(p.shape)} {p.dtype}".replace("torch.", "") for name, p in parameters.items()]
    _check_same("parameter", mine, group)


def check_same_plan(plan: Plan, group: dist.ProcessGroup) -> None:
    """Refuse plans that differ between ranks, on all of them.

    Raises
    ------
    HocketError
        Naming the first reduction that differs, and the ranks.
    """
    reductions = [
        f"{', '.join(r.parameters)} (chunks {r.chunks}, window {r.window}, slice {r.slice})"
        for r in plan.reductions
    ]
    order = [] if plan.compute_order is None else list(plan.compute_order)
    _check_same("reduction of the plan", reductions, group)
    _check_same("operation of the plan's order", order, group)


def _check_same(what: str, mine: Sequence[str], group: dist.ProcessGroup) -> None:
    digest = hashlib.sha256(msgspec.json.encode(mine)).hexdigest()
    digests = gathered(digest, group)
    if len(set(digests)) == 1:
        return
    # Only who differs sends a list, and everybody reads the same ones.
    lists: list[Sequence[str]] = gathered(mine, group)
    other = next(rank for rank, theirs in enumerate(digests) if theirs != digests[0])
    first, second = lists[0], lists[other]
    at = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    here, there = (rows[at] if at < len(rows) else "none" for rows in (first, second))
    raise HocketError(
        f"{what} {at} differs: rank 0 has {here}, rank {other} has {there}; give every rank the same"
    )


def gathered(value: Any, group: dist.ProcessGroup) -> list[Any]:
    """``value`` of every rank, in their order."""
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def from_first(value: T, group: dist.ProcessGroup) -> T:
    """Rank 0's ``value``."""
    box = [value]
    dist.broadcast_object_list(box, group=group, group_src=0)
    return box[0]


def largest(values: Sequence[float], group: dist.ProcessGroup) -> list[float]:
    """The largest over the ranks of each of ``values``."""
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    result: list[float] = tensor.tolist()
    return result


def spread(tensors: Sequence[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Rank 0's values into ``tensors`` of every rank, in place, a few megabytes at a time."""
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for alike in kinds.values():
        _broadcast_coalesced(group, alike, 4 << 20, 0)
