"""The kernel's start and end times as a timeline that people and tools can read."""

from __future__ import annotations

import numpy as np

from hocket.graph import Lane, MemoryPoint, Plan, Span, Timeline
from hocket.sim.lowering.lowered import Floats, Lowered, TimelineNode


def timeline_of(
    lowered: Lowered,
    num_workers: int,
    plan: Plan,
    start_s: Floats,
    end_s: Floats,
    from_s: float,
    to_s: float,
) -> Timeline:
    """Lay out what ran between two moments: each worker's processor and channels, servers, the network.

    start_s, end_s: (turns, steps, S), as :meth:`hocket.sim.step_runs.StepRuns.window` returns them. Where
    steps overlap, what reaches into the window from another step is shown as far as it does.
    """
    u, num_locals = lowered.program.num_globals, lowered.num_locals
    num_turns, num_steps, _ = start_s.shape
    local = [shown for shown in lowered.timeline_nodes if shown.node >= u]
    shared = [shown for shown in lowered.timeline_nodes if shown.node < u]
    lanes: dict[Lane, int] = {}
    spans: list[Span] = []

    def emit(shown: TimelineNode, item: int, process: str, lane_name: str) -> None:
        lane = lanes.setdefault(Lane(process=process, name=lane_name), len(lanes))
        for turn, k in np.ndindex(num_turns, num_steps):
            start, end = float(start_s[turn, k, item]), float(end_s[turn, k, item])
            # A step that stands alone shows everything, also what takes no time at its very end.
            alone = num_steps == 1 and not np.isnan(start)
            if alone or (start < to_s and end > from_s):
                start, end = max(start, from_s), min(end, to_s)
                spans.append(Span(lane, shown.name, shown.kind, start - from_s, end - from_s))

    for w in range(num_workers):
        for shown in local:
            emit(shown, shown.node + w * num_locals, f"worker {w}", shown.lane)
    for shown in shared:
        process, lane_name = (shown.lane, "compute") if shown.kind == "update" else ("network", shown.lane)
        emit(shown, shown.node, process, lane_name)
    spans.sort(key=lambda span: (span.start_s, span.lane))
    title = f"{lowered.graph.model}, {plan.policy}, simulated"
    return Timeline(
        title=title,
        lanes=tuple(lanes),
        spans=tuple(spans),
        memory=_memory(lowered, start_s[0, 0], end_s[0, 0]),
    )


def _memory(lowered: Lowered, start_s: Floats, end_s: Floats) -> tuple[MemoryPoint, ...]:
    """The memory of the first worker over one step's items, where its changes are known.

    Changes at one moment stay in their order, so that the most of it is seen.
    """
    changes = [
        (0.0 if each.node < 0 else float((start_s if each.begins else end_s)[each.node]), each.size_bytes)
        for each in lowered.held
    ]
    points, held = [], 0
    for at_s, size_bytes in sorted(changes, key=lambda change: change[0]):
        held += size_bytes
        points.append(MemoryPoint(at_s, held))
    return tuple(points)
