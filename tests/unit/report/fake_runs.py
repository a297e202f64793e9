"""Made-up results and timelines that look like a simulated parameter server's, sized at will."""

import numpy as np

from hocket.graph.result import ResultRow
from hocket.graph.timeline import Lane, Span, Timeline
from hocket.report.result_files import Entry


def fake_row(
    policy="tac", *, compute_s=0.30, communication_s=0.28, overlap=0.8, spread=0.03, steps=20, **changes
):
    """A consistent row whose steps scatter by ``spread`` around the mean that ``overlap`` gives."""
    shorter_s = min(compute_s, communication_s)
    rng = np.random.default_rng(sum(map(ord, policy)))
    noise = rng.gamma(2.0, spread / 2.0, steps)
    times = compute_s + communication_s - shorter_s * (overlap - noise + noise.mean())
    mean_s = float(times.mean())
    row = {
        "policy": policy,
        "model": "inception_v3",
        "architecture": "ps",
        "workers": 4,
        "servers": 1,
        "iteration_s": mean_s,
        "iteration_p95_s": float(np.quantile(times, 0.95)),
        "straggler_fraction": spread,
        "compute_s": compute_s,
        "communication_s": communication_s,
        "rho": communication_s / compute_s if compute_s else 0.0,
        "overlap": (compute_s + communication_s - mean_s) / shorter_s if shorter_s else 0.0,
        "utilization": compute_s / mean_s if mean_s else 0.0,
        "bound_s": max(compute_s, communication_s, 1e-3),
        "throughput": 4 * 32 / mean_s if mean_s else 0.0,
        "events": 12000,
        "wall_s": 0.02,
        "iterations_s": tuple(times.tolist()),
    }
    return ResultRow(**(row | changes))


def fake_timeline(
    *, workers=4, num_ops=1500, num_parameters=200, compute_s=0.30, communication_s=0.28, order="file"
):
    """One step: pulls in some order, operations as their parameters come, pushes as gradients do."""
    rng = np.random.default_rng(7)
    lanes = [
        Lane(process=f"worker {w}", name=name)
        for w in range(workers)
        for name in ("processor", "downlink", "uplink")
    ]
    lanes.append(Lane(process="server 0", name="processor"))
    forward = num_ops // 3
    op_s = rng.lognormal(0.0, 1.0, num_ops)
    op_s *= compute_s / op_s.sum()
    transfer_s = rng.lognormal(0.0, 1.2, num_parameters)
    transfer_s *= communication_s / 2.0 / transfer_s.sum()
    reader = np.linspace(0, forward - 1, num_parameters).astype(int)
    spans, pushes = [], []
    for w in range(workers):
        slow = 1.0 + 0.01 * w
        pulls = rng.permutation(num_parameters) if order == "random" else np.arange(num_parameters)
        pulled, clock = np.zeros(num_parameters), 0.0
        for p in pulls:
            spans.append(Span(3 * w + 1, f"layer{p}/weight", "pull", clock, clock + transfer_s[p]))
            pulled[p] = clock = clock + transfer_s[p]
        needed = np.zeros(num_ops)
        np.maximum.at(needed, reader, pulled)
        clock, uplink, ends = 0.0, 0.0, np.zeros(num_ops)
        for op in range(num_ops):
            start = max(clock, needed[op])
            clock = ends[op] = start + op_s[op] * slow
            spans.append(Span(3 * w, f"op{op}", "forward" if op < forward else "backward", start, clock))
        done = np.linspace(forward, num_ops - 1, num_parameters).astype(int)
        for k, p in enumerate(reversed(range(num_parameters))):
            start = max(uplink, ends[done[k]])
            uplink = start + transfer_s[p]
            spans.append(Span(3 * w + 2, f"layer{p}/weight", "push", start, uplink))
            pushes.append((uplink, p))
    busy = 0.0
    for ready, p in sorted(pushes):
        start = max(busy, ready)
        busy = start + 2e-5
        spans.append(Span(3 * workers, f"update layer{p}/weight", "update", start, busy))
    spans = [Span(s.lane, s.name, s.kind, float(s.start_s), float(s.end_s)) for s in spans]
    spans.sort(key=lambda span: span.start_s)
    return Timeline(title=f"{order} order", lanes=tuple(lanes), spans=tuple(spans))


def fake_entries(*, workers=4, num_ops=1500):
    """Eight policies, with timelines for the best and the worst."""
    overlaps = {
        "tac": 0.93,
        "tic": 0.91,
        "search": 0.95,
        "random": 0.42,
        "fifo": 0.71,
        "layerwise": 0.78,
        "ibatch": 0.86,
        "reverse": 0.35,
    }
    rows = {
        policy: fake_row(policy, overlap=overlap, spread=0.1 * (1.1 - overlap))
        for policy, overlap in overlaps.items()
    }
    entries = [Entry(row) for policy, row in rows.items() if policy not in ("random", "reverse", "search")]
    entries.append(Entry(rows["random"]))
    entries.append(Entry(rows["search"], fake_timeline(workers=workers, num_ops=num_ops)))
    entries.append(Entry(rows["reverse"], fake_timeline(workers=workers, num_ops=num_ops, order="random")))
    return entries
