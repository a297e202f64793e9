"""A plan as arrays: what a search changes thousands of times a second and kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Indices
from hocket.graph.plan import Plan, Pull, Push, Reduction
from hocket.graph.step import StepGraph

Mask = npt.NDArray[np.bool_]

_END = np.ones(1, np.bool_)  # as if one more transfer began there


@dataclass(frozen=True, eq=False, kw_only=True)
class Transfers:
    """Transfers in order, each a run of parameters.

    ``order`` (m,): parameter indices; ``starts`` (m,): whether a transfer begins with that parameter; the
    others are aligned with ``order`` and count where one begins: ``chunks`` (m,) and, of reductions,
    ``forward`` (m,), whether only first readers wait for it, and ``halves`` (m,).
    """

    order: Indices
    starts: Mask
    chunks: Indices
    forward: Mask
    halves: Mask

    @property
    def first(self) -> Indices:
        """The place in ``order`` where each transfer begins, and its length at the end, (transfers + 1,)."""
        return np.concatenate((self.starts, _END)).nonzero()[0]

    def batches(self) -> list[Indices]:
        """The parameters of each transfer."""
        return np.split(self.order, self.first[1:-1]) if len(self.order) else []


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatPlan:
    """``pulls`` are empty for AllReduce, whose reductions are ``gradients``, as pushes are.

    ``rank`` (n,): which of two ready operations a processor takes first; ``listed``: gradients leave strictly
    in order.
    """

    architecture: Literal["ps", "allreduce"]
    barrier: Literal["step", "parameter"]
    pulls: Transfers
    gradients: Transfers
    listed: bool
    rank: Indices


def flatten(plan: Plan, graph: StepGraph) -> FlatPlan:
    """The arrays of ``plan``, which fits ``graph``; a free compute order ranks operations as in the file."""
    assert plan.architecture != "fsdp", "units are no transfers in a row"
    index = {name: i for i, name in enumerate(graph.parameter_names)}
    rank = np.arange(graph.num_operations)
    if plan.compute_order is not None:
        position = {name: k for k, name in enumerate(plan.compute_order)}
        last = len(position)
        keys = [position.get(name, last + i) for i, name in enumerate(graph.operation_names)]
        rank = np.argsort(np.argsort(keys, kind="stable"), kind="stable")
    gradients: Sequence[Push | Reduction] = plan.pushes if plan.architecture == "ps" else plan.reductions
    listed = plan.issue == "listed" if plan.architecture == "ps" else plan.issue != "ready"
    return FlatPlan(
        architecture=plan.architecture,
        barrier=plan.barrier,
        pulls=_transfers(plan.pulls if plan.architecture == "ps" else (), index),
        gradients=_transfers(gradients, index),
        listed=listed,
        rank=rank,
    )


def _transfers(batches: Sequence[Pull | Push | Reduction], index: dict[str, int]) -> Transfers:
    sizes = [len(batch.parameters) for batch in batches]
    forward = [isinstance(batch, Reduction) and batch.window == "forward" for batch in batches]
    halves = [isinstance(batch, Reduction) and batch.halves for batch in batches]
    starts = np.zeros(sum(sizes), bool)
    starts[np.cumsum([0, *sizes])[:-1]] = True
    return Transfers(
        order=np.array([index[name] for batch in batches for name in batch.parameters], np.int64),
        starts=starts,
        chunks=np.repeat(np.array([batch.chunks for batch in batches], np.int64), sizes),
        forward=np.repeat(np.array(forward, bool), sizes),
        halves=np.repeat(np.array(halves, bool), sizes),
    )


def plan_of(
    flat: FlatPlan, graph: StepGraph, policy: str, compute_order: Sequence[int] | None = None
) -> Plan:
    """``flat`` as a plan; ``compute_order``: operations that a worker runs strictly in that order."""
    names = graph.parameter_names

    def rows(transfers: Transfers) -> list[tuple[tuple[str, ...], int, int]]:
        return [
            (tuple(names[i] for i in batch), int(transfers.chunks[start]), start)
            for batch, start in zip(transfers.batches(), transfers.first.tolist(), strict=False)
        ]

    order = None if compute_order is None else tuple(graph.operation_names[i] for i in compute_order)
    if flat.architecture == "allreduce":
        return Plan(
            policy=policy,
            model=graph.model,
            architecture="allreduce",
            reductions=tuple(
                Reduction(
                    parameters=batch,
                    chunks=chunks,
                    window="forward" if flat.gradients.forward[start] else "backward",
                    halves=bool(flat.gradients.halves[start]),
                )
                for batch, chunks, start in rows(flat.gradients)
            ),
            compute_order=order,
            issue=None if flat.listed else "ready",
        )
    return Plan(
        policy=policy,
        model=graph.model,
        architecture="ps",
        pulls=tuple(
            Pull(parameters=batch, priority=k, chunks=chunks)
            for k, (batch, chunks, _) in enumerate(rows(flat.pulls))
        ),
        pushes=tuple(Push(parameters=batch, chunks=chunks) for batch, chunks, _ in rows(flat.gradients)),
        compute_order=order,
        issue="listed" if flat.listed else None,
        barrier=flat.barrier,
    )
