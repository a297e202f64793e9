"""Policies of frameworks for AllReduce, to be beaten: no batches, DDP's buckets, Horovod's fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hocket.errors import HocketError
from hocket.graph import Plan, Reduction, StepGraph
from hocket.network import Network, reduction_s
from hocket.planner.pull_plan import gradient_order
from hocket.planner.worker_processor import serial_times, step_operations

_MIB = 2**20
DDP_BUCKET_BYTES = 25 * _MIB
"""DistributedDataParallel's default."""
DDP_BUCKETS_MIB = (1, 5, 25, 100)
"""Sizes of its buckets that ``ddp-best`` and ``hocket bench train`` compare, its default among them."""
_FIRST_BUCKET_BYTES = _MIB


def wfbp(graph: StepGraph, network: Network) -> Plan:
    """Wait-free backpropagation: each gradient is reduced alone as soon as all workers have it."""
    del network
    return _reduction_plan("wfbp", graph, [[g] for g in gradient_order(graph)], "ready")


def ddp(graph: StepGraph, network: Network, bucket_bytes: int = DDP_BUCKET_BYTES) -> Plan:
    """PyTorch DistributedDataParallel's buckets, in the order in which it launches them.

    Parameters in reverse order of the program; a bucket takes them until it holds ``bucket_bytes`` or more
    (the first of each type 1 MiB), one type only. DDP rebuilds its buckets after the first step in the order
    in which gradients arrived, which this order stands for. Where it is told another size than its default of
    25 MiB, its first bucket has that size too; a smaller one leaves earlier.
    """
    del network
    buckets: list[list[int]] = []
    opened: dict[str, list[int]] = {}
    started: set[str] = set()
    for g in reversed(range(graph.num_parameters)):
        if not graph.produced[g]:
            continue
        dtype = graph.parameter_dtypes[g]
        bucket = opened.setdefault(dtype, [])
        bucket.append(g)
        limit = bucket_bytes if dtype in started else min(bucket_bytes, _FIRST_BUCKET_BYTES)
        if graph.parameter_bytes[bucket].sum() >= limit:
            buckets.append(opened.pop(dtype))
            started.add(dtype)
    return _reduction_plan("ddp", graph, [*buckets, *opened.values()], "listed")


def horovod(graph: StepGraph, network: Network, fusion_bytes: int = 0) -> Plan:
    """Horovod: gradients as workers agree that they are ready, fused up to ``fusion_bytes``.

    With fusion, what is ready when the network becomes free leaves together, in order, as much as the buffer
    holds and of one type, and a gradient that it does not hold alone; 0 fuses nothing. When that is comes
    from a processor that runs the program's order with each operation's minimum over the samples.

    Raises
    ------
    HocketError
        When ``fusion_bytes`` is below 0.
    """
    if fusion_bytes < 0:
        raise HocketError(f"fusion {fusion_bytes} B is below 0; give e.g. 64000000, or 0 for none")
    gradients = gradient_order(graph)
    if fusion_bytes == 0 or not gradients:
        return _reduction_plan("horovod", graph, [[g] for g in gradients], "ready")
    sizes = graph.parameter_bytes.tolist()
    ready_s = serial_times(graph, step_operations(graph)).ready_s
    batches: list[list[int]] = []
    free_s = 0.0
    while gradients:
        now_s = max(free_s, float(ready_s[gradients[0]]))
        batch: list[int] = []
        size = 0
        for g in gradients:
            same_type = graph.parameter_dtypes[g] == graph.parameter_dtypes[gradients[0]]
            if batch and (ready_s[g] > now_s or size + sizes[g] > fusion_bytes or not same_type):
                break
            batch.append(g)
            size += sizes[g]
        batches.append(batch)
        gradients = gradients[len(batch) :]
        free_s = now_s + reduction_s(network, size)
    return _reduction_plan("horovod", graph, batches, "ready")


def _reduction_plan(
    policy: str, graph: StepGraph, batches: Sequence[Sequence[int]], issue: Literal["listed", "ready"]
) -> Plan:
    """The batches of gradients (parameter indices), each whole and awaited by the next step."""
    return Plan(
        policy=policy,
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(
            Reduction(parameters=tuple(graph.parameter_names[g] for g in batch)) for batch in batches
        ),
        compute_order=None,
        issue=issue,
    )
