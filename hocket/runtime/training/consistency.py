"""Checks that all ranks agree on the model and the plan before gradients are summed up."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import torch

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.runtime.transfers.gloo_group import GlooGroup, gather_values


def check_same_arguments(mine: Mapping[str, str], group: GlooGroup) -> None:
    """Refuse arguments, by name as text, that differ between ranks, on all of them.

    Raises
    ------
    HocketError
        Naming the first argument that differs, and the ranks.
    """
    told = gather_values(dict(mine), group, dict[str, str])
    for name, first in told[0].items():
        other = next((rank for rank, theirs in enumerate(told) if theirs[name] != first), None)
        if other is not None:
            raise HocketError(
                f"{name} differs: rank 0 has {first}, rank {other} has {told[other][name]}; give every rank"
                " the same"
            )


def wanted_plan(plan: Plan | None, policy: str) -> str:
    """The words for what a rank was asked to train by: a plan, or else a policy."""
    return f"'{policy}'" if plan is None else "a given plan"


def check_same_model(
    parameters: Mapping[str, torch.nn.Parameter], buffers: Mapping[str, torch.Tensor], group: GlooGroup
) -> None:
    """Refuse parameters or buffers, those that are kept alike, that differ between ranks, on all of them.

    Raises
    ------
    HocketError
        Naming the first parameter, or else buffer, that differs, and the ranks.
    """
    rows = [_description(name, p) + ("" if p.requires_grad else ", frozen") for name, p in parameters.items()]
    _check_same("parameter", rows, group)
    _check_same("buffer", [_description(name, b) for name, b in buffers.items()], group)


def _description(name: str, tensor: torch.Tensor) -> str:
    place = "" if tensor.device.type == "cpu" else f" on {tensor.device.type}"
    return f"{name} {tuple(tensor.shape)} {tensor.dtype}{place}".replace("torch.", "")


def check_same_plan(plan: Plan, group: GlooGroup) -> None:
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
    _check_same("issue of the plan,", [plan.issue or "listed"], group)
    _check_same("operation of the plan's order", order, group)


def check_same_units(plan: Plan, group: GlooGroup) -> None:
    """Refuse fully sharded plans that differ between ranks, on all of them.

    Raises
    ------
    HocketError
        Naming the first unit that differs, and the ranks.
    """
    count = len(plan.units)
    ahead = plan.forward_prefetch or [None] * count, plan.backward_prefetch or [None] * count
    units = [
        f"{', '.join(names)} (reshard_after_forward {reshard}, forward_prefetch {forward},"
        f" backward_prefetch {backward})"
        for names, reshard, forward, backward in zip(
            plan.units, plan.reshard_after_forward, *ahead, strict=True
        )
    ]
    _check_same("unit of the plan", units, group)


def check_same_gradient_type(mine: torch.dtype | None, group: GlooGroup) -> None:
    """Refuse other types of gradients on their way on some ranks, on all of them.

    Raises
    ------
    HocketError
        Naming the types and the ranks.
    """
    told = gather_values("their own type" if mine is None else str(mine), group, str)
    other = next((rank for rank, theirs in enumerate(told) if theirs != told[0]), None)
    if other is not None:
        raise HocketError(
            f"gradients travel as {told[0]} on rank 0 and as {told[other]} on rank {other}; give every rank"
            " the same gradient_dtype, or communication hook"
        )


def _check_same(what: str, mine: Sequence[str], group: GlooGroup) -> None:
    digest = hashlib.sha256(msgspec.json.encode(mine)).hexdigest()
    digests = gather_values(digest, group, str)
    if len(set(digests)) == 1:
        return
    # Only who differs sends a list, and everybody reads the same ones.
    lists = gather_values(list(mine), group, list[str])
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
