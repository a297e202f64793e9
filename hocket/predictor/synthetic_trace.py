"""A synthetic trace of training with many workers, for people and tools to look at.

Source: Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020), section 3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hocket.errors import HocketError
from hocket.graph import Lane, Span, StepGraph, Timeline
from hocket.network import Network
from hocket.predictor.kernel_run import NO_LOG, run_steps, stoppable
from hocket.predictor.lowering import WorkerStep, lower_worker_step
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import Prepared, prepare
from hocket.predictor.program import ChunkLog
from hocket.predictor.run_outcome import LARGEST_SEED
from hocket.sim.lowering.lowered import Floats

STEPS_SHOWN = 3


def trace(graph: StepGraph, network: Network, *, workers: int, servers: int, **options: Any) -> Timeline:
    """The timeline of workers and servers in :data:`STEPS_SHOWN` steps after the skipped ones.

    ``options`` are those of :func:`hocket.predict` that say what is simulated.

    Raises
    ------
    FormatError, HocketError
        When the request cannot be served, or its steps overlap; :func:`hocket.simulate` draws those.
    """
    request = Request(graph=graph, network=network, served=True, **options)
    prepared = prepare(request, workers, servers)
    if prepared.step is None:
        raise HocketError(
            "steps that overlap, as all-reduce has them, are drawn by hocket simulate --timeline; predict"
            " draws those of servers (--architecture ps), asynchronous or with a barrier per step"
        )
    # Joined operations would be drawn as one, so the run is repeated without joining.
    step = lower_worker_step(request.graph, prepared.plan, prepared.network, prepared.rules, joined=False)
    each = 1 if prepared.needed else workers
    num_ends = each * min(request.skip + STEPS_SHOWN + 1, request.steps)
    ends = _run(prepared, step, num_ends)
    first = min(request.skip, num_ends // each - 1) * each
    from_s = float(ends[first - 1]) if first else 0.0
    to_s = float(ends[min(first + STEPS_SHOWN * each, num_ends) - 1])
    # A stream is logged once or, cut by the window, twice; workers differ in how far they come.
    room = 4 * (STEPS_SHOWN + 2) * (workers * len(step.program.lane) + len(step.program.global_server))
    log = ChunkLog(from_s, to_s, np.full(room, -2), np.empty(room, np.int64), np.zeros(room), np.zeros(room))
    _run(prepared, step, num_ends, log)
    return _timeline(prepared, step, log)


def _run(prepared: Prepared, step: WorkerStep, num_ends: int, log: ChunkLog = NO_LOG) -> Floats:
    ends, _ = stoppable(
        lambda: run_steps(
            step,
            prepared.topology,
            num_ends,
            prepared.run_settings(prepared.request.seed & LARGEST_SEED),
            log=log,
        )
    )
    return ends


def _timeline(prepared: Prepared, step: WorkerStep, log: ChunkLog) -> Timeline:
    local, shared = step.nodes.shown()
    servers, lane_of = prepared.network.num_servers, step.program.lane
    lanes: dict[Lane, int] = {}

    def lane_at(worker: int, own: int) -> int:
        name = "compute"
        if own:
            kind = ("update", "pull", "push")[(own - 1) // servers]
            name = kind if servers == 1 else f"{kind}, server {(own - 1) % servers}"
        return lanes.setdefault(Lane(process=f"worker {worker}", name=name), len(lanes))

    for worker in range(prepared.network.num_workers):
        for own in range(1 + 3 * servers):
            lane_at(worker, own)
    if shared:
        for server in range(servers):
            lanes.setdefault(Lane(process=f"server {server}", name="compute"), len(lanes))
    spans = []
    for k in np.flatnonzero(log.worker > -2).tolist():
        worker, node = int(log.worker[k]), int(log.node[k])
        start_s, end_s = max(float(log.start_s[k]), log.from_s), min(float(log.end_s[k]), log.to_s)
        if worker >= 0:
            name, kind = local[node]
            lane = lane_at(worker, int(lane_of[node]))
        else:
            name, kind = shared[node]
            server = int(step.program.global_server[node])
            lane = lanes[Lane(process=f"server {server}", name="compute")]
        spans.append(Span(lane, name, kind, start_s - log.from_s, end_s - log.from_s))
    spans.sort(key=lambda span: (span.start_s, span.lane))
    graph, plan = prepared.request.graph, prepared.plan
    title = (
        f"{graph.model}, {plan.policy}, {prepared.mode}, {prepared.network.num_workers} workers, predicted"
    )
    return Timeline(title=title, lanes=tuple(lanes), spans=tuple(spans))
