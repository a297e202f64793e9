"""A model trained by DistributedDataParallel and its twin trained by us, step by step on the same batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket
from hocket.graph import Plan, Reduction
from tests.delayed.install import moved
from tests.gpu.placement import placed

Optimizer = torch.optim.Optimizer


def sliced_plan(model: nn.Module, issue: Literal["listed", "ready"] = "listed") -> Plan:
    """Each gradient by itself in an order of no use, large ones in slices, all into the next forward pass."""
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    reductions = []
    for name in sorted(names, key=lambda name: name[::-1]):
        slices = [(0, 2, 3), (2, 3, 3)] if sizes[name] > 50 else [None]
        reductions += [Reduction(parameters=(name,), window="forward", slice=s) for s in slices]
    return Plan(
        policy="test",
        model="test",
        architecture="allreduce",
        reductions=tuple(reductions),
        compute_order=None,
        issue=issue,
    )


SLOW = hocket.Network(bandwidth_bps=2e6)
"""A network on which plans are worth trying, whatever processes here have."""


class Twins:
    """``ddp`` and ``ours`` start alike; with ``init_sync`` on every rank, whatever rank they were made on.

    ``buffers``: keywords for them that both have.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        optimize: Callable[[nn.Module], Any],
        *,
        plan: Plan | str | None = None,
        unused: bool = False,
        group: Any = None,
        init_sync: bool = True,
        buffers: Mapping[str, bool] | None = None,
        **options: Any,
    ) -> None:
        torch.manual_seed(0)
        model = make()
        self.ours = moved(placed(copy.deepcopy(model)))
        placed(model)
        of_both = {"process_group": group, "init_sync": init_sync, **(buffers or {})}
        self.ddp = DistributedDataParallel(model, find_unused_parameters=unused, **of_both)
        self.optimizers = optimize(model), optimize(self.ours)
        plan = sliced_plan(self.ours, "ready") if plan is None else plan
        returned = hocket.distribute(self.ours, self.optimizers[1], plan=plan, **of_both, **options)
        assert returned[0] is self.ours
        assert returned[1] is self.optimizers[1]

    def each(self) -> list[tuple[nn.Module, Any, Any]]:
        """Model to call, its optimizers, and its no_sync."""
        return [
            (self.ddp, self.optimizers[0], self.ddp.no_sync),
            (self.ours, self.optimizers[1], self.ours.hocket.no_sync),
        ]

    def differences(self, tolerance: float = 0.0) -> list[str]:
        """What differs of parameters, buffers and the optimizers' state."""
        found = differing("", self.ddp.module.state_dict(), self.ours.state_dict(), tolerance)
        for theirs, ours in zip(*map(_listed, self.optimizers), strict=True):
            found += differing("optimizer", theirs.state_dict(), ours.state_dict(), tolerance)
        return found


def _listed(optimizers: Any) -> Sequence[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else optimizers


def differing(place: str, a: Any, b: Any, tolerance: float = 0.0) -> list[str]:
    """Where two nested states differ."""
    if isinstance(a, torch.Tensor):
        if a.is_sparse and b.is_sparse:
            a, b = a.coalesce(), b.coalesce()
            pairs = (a.indices(), b.indices()), (a.values(), b.values())
            return [d for x, y in pairs for d in differing(place, x, y, tolerance)]
        if a.shape != b.shape:
            return [place]
        same = torch.equal(a, b) if tolerance == 0 else torch.allclose(a, b, rtol=tolerance, atol=tolerance)
        return [] if same else [place]
    if isinstance(a, dict):
        # A state comes to be in the order in which buckets arrive.
        same = set(a) == set(b) if place == "optimizer.state" else list(a) == list(b)
        if not same:
            return [f"{place}: keys {list(a)} and {list(b)}"]
        return [d for key in a for d in differing(f"{place}.{key}", a[key], b[key], tolerance)]
    if isinstance(a, list | tuple):
        return [
            d
            for i, (x, y) in enumerate(zip(a, b, strict=True))
            for d in differing(f"{place}[{i}]", x, y, tolerance)
        ]
    return [] if a == b else [place]
