"""A simulated cluster as a Timeline: a lane for each GPU, and as many for each link as it needs."""

from __future__ import annotations

import heapq

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.records import Ints
from hocket.cluster.jobs import JobSet
from hocket.cluster.simulator.simulation_log import SHOWN_BACKWARD, SHOWN_FORWARD, SHOWN_REDUCE
from hocket.graph import Lane, Span, Timeline
from hocket.graph.timeline import Kind

_KINDS: dict[int, Kind] = {SHOWN_FORWARD: "forward", SHOWN_BACKWARD: "backward", SHOWN_REDUCE: "reduce"}


def timeline_of(jobs: JobSet, cluster: Cluster, rows: Ints, tick_s: float) -> Timeline:
    """The spans of ``rows`` (n, 5): what, GPU or server, job, start and end in ticks.

    A server's GPUs come first, then its links: "link", and "link 2" where two transfers run together.
    """
    rows = rows[rows[:, 3].argsort(kind="stable")]
    links, link_of = _stack_transfers(rows)
    lanes: list[Lane] = []
    first = []
    for server in range(cluster.num_servers):
        first.append(len(lanes))
        names = [f"GPU {i}" for i in range(cluster.gpus_per_server)]
        names += ["link" if i == 0 else f"link {i + 1}" for i in range(max(1, links.get(server, 0)))]
        lanes += [Lane(process=f"server {server}", name=name) for name in names]
    spans = []
    for i, (shown, where, job, start, end) in enumerate(rows.tolist()):
        if shown == SHOWN_REDUCE:
            lane = first[where] + cluster.gpus_per_server + link_of[i]
        else:
            server, gpu = divmod(where, cluster.gpus_per_server)
            lane = first[server] + gpu
        spans.append(Span(lane, jobs.jobs[job].id, _KINDS[shown], start * tick_s, end * tick_s))
    title = "simulated cluster"
    if spans:
        title += f", {spans[0].start_s:.3f} s to {max(span.end_s for span in spans):.3f} s"
    return Timeline(title=title, lanes=tuple(lanes), spans=tuple(spans))


def _stack_transfers(rows: Ints) -> tuple[dict[int, int], dict[int, int]]:
    """The number of lanes that each server's link needs, and the lane of each transfer (by its row)."""
    busy: dict[int, list[tuple[int, int]]] = {}  # server: (end, lane)
    free: dict[int, list[int]] = {}
    needed: dict[int, int] = {}
    lane_of = {}
    for i, (shown, server, _job, start, end) in enumerate(rows.tolist()):
        if shown != SHOWN_REDUCE:
            continue
        ends = busy.setdefault(server, [])
        while ends and ends[0][0] <= start:
            heapq.heappush(free.setdefault(server, []), heapq.heappop(ends)[1])
        if free.get(server):
            lane_of[i] = heapq.heappop(free[server])
        else:
            lane_of[i] = needed.get(server, 0)
            needed[server] = lane_of[i] + 1
        heapq.heappush(ends, (end, lane_of[i]))
    return needed, lane_of
