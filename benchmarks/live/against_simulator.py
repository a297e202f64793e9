"""Live runs on a lab beside the simulator's predictions: python benchmarks/live/against_simulator.py OUT.json

First the cost of a transfer is measured: jobs that do little else, one to four of them on two nodes, and
Eq. 5's a, b and eta fitted to what they took. Then benchmarks/live/jobs.json runs on four nodes of two slots
under each policy, and is simulated with that network. Needs root, as labs do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

RATE, RATE_BPS = "250Mbit/s", 250e6
POLICIES = ("srsf-1", "srsf-2", "ada-srsf", "srpt")
CHUNK = "2MB"
HERE = Path(__file__).parent


def hocket(*arguments: str) -> Any:
    """What a command prints, where it is asked for JSON."""
    ran = subprocess.run(
        [sys.executable, "-m", "hocket", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(ran.stdout) if "--json" in arguments else None


def measured(folder: Path, count: int, size: float, iterations: int) -> float:
    """Seconds of one of ``count`` transfers of ``size`` bytes that share two nodes."""
    job = {
        **{"model": "m", "gpus": 2, "iterations": iterations, "arrival_s": 0.0, "memory_bytes": 1.0},
        **{"forward_s": 0.0005, "backward_s": 0.0005, "size_bytes": size},
    }
    path = folder / "transfers.json"
    jobs = [{"id": f"j{k}", **job} for k in range(count)]
    path.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": jobs}))
    row = hocket(
        "cluster", "run", str(path), "--placement", "ls", "--policy", f"srsf-{count}", "--lab", "live",
        "--servers", "2", "--json",
    )  # fmt: skip
    return float(np.mean([each["transferring_s"] / iterations for each in row["jobs"]]))


def main() -> None:
    """Measure, run, simulate, write."""
    folder = Path(tempfile.mkdtemp())
    hocket("lab", "up", "--nodes", "4", "--rate", RATE, "--name", "live")
    try:
        alone = [(1, size, 4e7) for size in (1e6, 2e6, 4e6, 8e6, 12e6)]
        shared = [(count, size, 6e7) for count in (2, 3, 4) for size in (2e6, 8e6)]
        points = [
            (k, size, measured(folder, k, size, round(sent / size))) for k, size, sent in alone + shared
        ]
        # a + (k b + (k - 1) eta) M, by relative errors.
        matrix = np.array([[1.0, k * size, (k - 1) * size] for k, size, _ in points])
        seconds = np.array([each for *_, each in points])
        (a, b, eta), _ = nnls(matrix / seconds[:, None], np.ones(len(points)))
        residuals = matrix @ [a, b, eta] / seconds - 1
        found: dict[str, Any] = {
            **{"a_s": a, "b_s_per_byte": b, "eta_s_per_byte": eta},
            "points": [(*point, residual) for point, residual in zip(points, residuals, strict=True)],
            "policies": {},
        }
        print(json.dumps(found), file=sys.stderr)
        network = folder / "network.json"
        write_network(network, a, b, eta)
        jobs = str(HERE / "jobs.json")
        for policy in POLICIES:
            setting = ("--placement", "lwf-1", "--policy", policy, "--servers", "4", "--gpus-per-server", "2")
            setting += ("--network", str(network), "--chunk", CHUNK, "--json")
            live = hocket("cluster", "run", jobs, *setting, "--lab", "live")
            predicted = hocket("cluster", "simulate", jobs, *setting)
            found["policies"][policy] = {"live": live, "simulated": predicted}
            ratio = live["average_jct_s"] / predicted["average_jct_s"]
            print(policy, live["average_jct_s"], predicted["average_jct_s"], ratio, file=sys.stderr)
    finally:
        hocket("lab", "down", "--name", "live")
    Path(sys.argv[1]).write_text(json.dumps(found))


def write_network(path: Path, a_s: float, b_s: float, eta_s: float) -> None:
    """A hocket.network/1 file with a measured AllReduce."""
    reduction = {"workers": 2, "a_s": a_s, "b_s_per_byte": b_s, "eta_s_per_byte": eta_s}
    path.write_text(
        json.dumps({"format": "hocket.network/1", "bandwidth_bps": RATE_BPS, "allreduce": reduction})
    )


if __name__ == "__main__":
    main()
