"""Verdicts on fully sharded plans: whether memory does, and what a shorter step costs of it."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.graph import MemoryNeed, Plan, StepGraph
from hocket.graph.result import ResultRow
from hocket.network import Network
from hocket.sim.lowering.sharded_step import ShardedStep, beside_of
from hocket.sim.sharded_memory import known_memory, sharded_need
from hocket.text import counted, duration_text, percent_text, scaled_text


def sharded_memory_answer(
    graph: StepGraph, network: Network, plan: Plan, memory_bytes: float | None
) -> list[str]:
    """A sentence on the memory that a fully sharded plan needs, and what it counts; none for other plans."""
    if plan.architecture != "fsdp":
        return []
    step = ShardedStep.of(graph, network)
    need = sharded_need(graph, step.schedule(plan), step.groups.shards)
    parts = f"{scaled_text(need.total_bytes, 'B')} (in GB, when it needs most: {_parts(graph, need)})"
    if memory_bytes is None:
        return [f"{plan.policy} needs {parts} of a device's memory"]
    fits = "fits into" if need.total_bytes <= memory_bytes else "does not fit into"
    return [f"{plan.policy} {fits} {scaled_text(memory_bytes, 'B')}: it needs {parts}"]


def _parts(graph: StepGraph, need: MemoryNeed) -> str:
    known = "" if known_memory(graph) is not None else "; activations and the optimizer's state are not known"
    return f"{need}{known}"


def over_the_limit(rows: Sequence[ResultRow], memory_bytes: float | None) -> list[ResultRow]:
    """The rows whose plans need more than the limit."""
    if memory_bytes is None:
        return []
    return [row for row in rows if row.memory_bytes is not None and row.memory_bytes > memory_bytes]


def limit_verdict(rows: Sequence[ResultRow], memory_bytes: float) -> str:
    """A sentence on how many of ``rows`` need more than the limit."""
    over = over_the_limit(rows, memory_bytes)
    limit = scaled_text(memory_bytes, "B")
    if not over:
        return f"all {len(rows)} plans fit into {limit}"
    if len(over) == len(rows):
        least = min(rows, key=lambda row: row.memory_bytes or 0.0)
        size = scaled_text(least.memory_bytes or 0.0, "B")
        fix = "use more workers or smaller batches"
        return f"no plan fits into {limit}: {least.policy} needs least, {size}; {fix}"
    fastest = min(over, key=lambda row: row.iteration_s)
    best = min((row for row in rows if row not in over), key=lambda row: row.iteration_s)
    gained = (
        f"; {fastest.policy}, which takes {scaled_text(fastest.memory_bytes or 0.0, 'B')}, would take"
        f" {duration_text(fastest.iteration_s)} a step"
        if fastest.iteration_s < best.iteration_s
        else ""
    )
    return f"{counted(len(over), 'plan')} of {len(rows)} do not fit into {limit}{gained}"


def copies_verdict(copied: ResultRow, best: ResultRow, gpus: int) -> str:
    """A sentence on a step with a copy in each node of so many GPUs, beside the best with one among all."""
    return (
        f"these plans have one copy of the parameters among all workers: with one in each node (--shards"
        f" {gpus}), not ranked here, a step takes {duration_text(copied.iteration_s)} by {copied.policy},"
        f" {percent_text(1 - copied.iteration_s / best.iteration_s)} less than by {best.policy} above; it"
        " sends less between nodes, so the bound above is not its bound"
    )


def sharded_remark(graph: StepGraph, plan: Plan) -> list[str]:
    """A remark on what an answer for a fully sharded plan takes for granted; none for other plans."""
    if plan.architecture != "fsdp":
        return []
    where = (
        "as FSDP2's streams have it on GPUs, all-gathers and reduce-scatters one by one as issued"
        if beside_of(graph).ahead
        else "as hocket.shard has it on CPUs: both beside computing (plain FSDP2 over gloo overlaps nothing)"
    )
    return [f"Collectives run {where}; updates take a shard's part of their time"]
