"""The kernel's start and end times as a timeline that people and tools can read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.graph import Lane, Plan, Span, Timeline
from hocket.graph.step import PHASE_NAMES
from hocket.graph.timeline import Kind
from hocket.sim.lower import Lowered
from hocket.sim.transfers import Transfers

Floats = npt.NDArray[np.float64]


def timeline_of(lowered: Lowered, plan: Plan, start_s: Floats, end_s: Floats) -> Timeline:
    """Lay out one step: per worker a processor and a lane for each channel, per server a processor.

    start_s, end_s: (W * L + u,), as :func:`hocket.sim._kernel.run` fills them.
    """
    graph, network, program = lowered.graph, lowered.network, lowered.program
    num_workers, num_servers, num_local = network.num_workers, network.num_servers, len(program.waits)
    lanes: list[Lane] = []
    spans: list[Span] = []

    def emit(lane: int, name: str, kind: Kind, item: int) -> None:
        spans.append(Span(lane, name, kind, float(start_s[item]), float(end_s[item])))

    pulls, pushes = lowered.pulls, lowered.pushes
    pull_names = _names(pulls, [pull.parameters for pull in plan.pulls])
    push_names = _names(pushes, [push.parameters for push in plan.pushes])
    for w in range(num_workers):
        first = len(lanes)
        process = f"worker {w}"
        lanes.append(Lane(process=process, name="compute"))
        for kind in ("pull", "push"):
            lanes += [
                Lane(process=process, name=kind if num_servers == 1 else f"{kind}, server {s}")
                for s in range(num_servers)
            ]
        for i, op in enumerate(lowered.worker_ops):
            emit(first, graph.operation_names[op], _phase(graph.phases[op]), w * num_local + i)
        first_pull = w * num_local + program.num_ops
        for part, server in enumerate(pulls.server):
            emit(first + 1 + int(server), pull_names[part], "pull", first_pull + part)
        for part, server in enumerate(pushes.server):
            item = first_pull + pulls.num_parts + part
            emit(first + 1 + num_servers + int(server), push_names[part], "push", item)
    if len(lowered.server_ops):
        first = len(lanes)
        lanes += [Lane(process=f"server {s}", name="compute") for s in range(num_servers)]
        for j, op in enumerate(lowered.server_ops):
            lane = first + int(program.server_lane[j]) - num_workers
            emit(lane, graph.operation_names[op], "update", num_workers * num_local + j)
    spans.sort(key=lambda span: (span.start_s, span.lane))
    return Timeline(title=f"{graph.model}, {plan.policy}, simulated", lanes=tuple(lanes), spans=tuple(spans))


def _names(way: Transfers, batches: list[tuple[str, ...]]) -> list[str]:
    texts = [batch[0] if len(batch) == 1 else f"{batch[0]} and {len(batch) - 1} more" for batch in batches]
    return [texts[batch] for batch in way.batch]


def _phase(phase: np.int8) -> Kind:
    return PHASE_NAMES[phase]  # type: ignore[return-value]
