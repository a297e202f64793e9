"""Made-up predictions: a curve that grows with its workers up to eight of them."""

from hocket.predictor import Prediction


def fake_prediction(workers, servers=1, **changes):
    """A row at 50 examples/s a worker, the models at 40."""
    throughput = 50.0 * workers
    row = {
        "workers": workers,
        "servers": servers,
        "mode": "async",
        "throughput": throughput,
        "step_s": 0.64,
        "events": 12000,
        "wall_s": 0.02,
        "architecture": "ps",
        "policy": "fifo",
        "bottleneck": "worker processors",
        "bottleneck_utilization": 0.9,
        "lin": 0.8 * throughput,
        "cynthia": 0.8 * throughput,
    }
    row |= changes
    reached = row["throughput"] / 50.0 or None
    row |= {"alone_throughput": 50.0, "speedup": reached, "efficiency": reached and reached / workers}
    return Prediction(**row)


def fake_curve(servers=1, workers=(1, 2, 4, 8, 16)):
    """A curve whose servers' links are full with eight workers each."""
    rows = []
    for w in workers:
        full = 8 * servers
        served = min(w, full)
        saturated = {"bottleneck": "downlink", "bottleneck_utilization": 1.0} if w >= full else {}
        rates = {"throughput": 50.0 * served, "lin": 40.0 * served, "cynthia": 40.0 * served}
        rows.append(fake_prediction(w, servers, step_s=0.64 * w / served, **rates, **saturated))
    return rows
