"""Made-up results of a shared cluster, sized at will."""

import numpy as np

from hocket.cluster.results.run_statistics import ClusterRow, Contention, JobRow, Percentiles


def fake_cluster(policy="psrsf", *, jobs=40, slower=1.0, servers=4, gpus_per_server=4, **changes):
    """Jobs of one, two or eight GPUs that come one after the other and take ``slower`` times as long."""
    rng = np.random.default_rng(5)
    rows = []
    for i in range(jobs):
        width = int(rng.choice([1, 2, 8]))
        arrival_s, queued_s = 10.0 * i, float(rng.exponential(20.0))
        computing_s = float(rng.exponential(300.0)) + 10.0
        waited_s, transferring_s = slower * float(rng.exponential(80.0)), float(rng.exponential(60.0))
        first = int(rng.integers(servers * gpus_per_server))
        places = [divmod((first + k) % (servers * gpus_per_server), gpus_per_server) for k in range(width)]
        jct_s = queued_s + computing_s + transferring_s + waited_s
        rows.append(
            JobRow(
                id=f"j{i}",
                model="resnet50",
                arrival_s=arrival_s,
                start_s=arrival_s + queued_s,
                finish_s=arrival_s + jct_s,
                jct_s=jct_s,
                gpus=tuple(places),
                queueing_s=queued_s,
                computing_s=computing_s,
                gpu_wait_s=0.0,
                transferring_s=transferring_s,
                network_wait_s=waited_s,
            )
        )
    times = [row.jct_s for row in rows]
    averages = {
        f"average_{part}_s": float(np.mean([getattr(row, f"{part}_s") for row in rows]))
        for part in ("queueing", "computing", "gpu_wait", "transferring", "network_wait")
    }
    percentiles = np.percentile(times, (5, 25, 75, 90, 99)).tolist()
    fields = {
        "placement": "lwf-1",
        "policy": policy,
        "jobs": tuple(rows),
        "average_jct_s": float(np.mean(times)),
        "median_jct_s": float(np.median(times)),
        "p95_jct_s": float(np.percentile(times, 95)),
        "gpu_utilization": 0.4,
        "makespan_s": max(row.finish_s for row in rows),
        **averages,
        "percentiles": Percentiles(**dict(zip(Percentiles.__struct_fields__, percentiles, strict=True))),
        "contention": Contention(
            begin_s=0.0, bin_s=20.0, mean=tuple(np.abs(np.sin(np.arange(60))).tolist()), most=(2,) * 60
        ),
        "source": "jobs.json",
        "servers": servers,
        "gpus_per_server": gpus_per_server,
        "events": 1000,
        "wall_s": 0.01,
    }
    return ClusterRow(**(fields | changes))
