"""Live runs on a lab beside the simulator's predictions: python benchmarks/live/against_simulator.py OUT.json

First the cost of a transfer is measured: jobs that do little else, one to four of them on two nodes, and
Eq. 5's a, b and eta fitted to what they took. Then each job of benchmarks/live/jobs.json runs alone, its
profile: what it takes longer than its computing and transfers, for processes that start and for questions at
the gate, is computing to the simulator. At last all of them run together on four nodes of two slots, under
each policy in turns, and are simulated with that network and those profiles. Needs root, as labs do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

RATE, RATE_BPS = "250Mbit/s", 250e6
POLICIES = ("fifo", "srsf-1", "srsf-3", "ada-srsf", "srpt")
CHUNK = "2MB"
ROUNDS = 2
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
        document = json.loads((HERE / "jobs.json").read_text())
        profiled = [profile(job, folder, network) for job in document["jobs"]]
        found["profiles"] = profiled
        predicted = {policy: simulated(profiled, folder, network, policy) for policy in POLICIES}
        jobs = str(HERE / "jobs.json")
        runs: dict[str, list[Any]] = {policy: [] for policy in POLICIES}
        for turn in range(ROUNDS):
            for policy in POLICIES if turn % 2 == 0 else POLICIES[::-1]:
                live = hocket("cluster", "run", jobs, *setting(network, policy), "--lab", "live")
                runs[policy].append(live)
                ratio = live["average_jct_s"] / predicted[policy]["average_jct_s"]
                print(f"{policy} {live['average_jct_s']:.2f} s, x{ratio:.3f}", file=sys.stderr)
        for policy in POLICIES:
            found["policies"][policy] = {"live": runs[policy], "simulated": predicted[policy]}
            seconds = statistics.median(live["average_jct_s"] for live in runs[policy])
            expected = predicted[policy]["average_jct_s"]
            print(policy, seconds, expected, f"{seconds / expected - 1:+.1%}", file=sys.stderr)
    finally:
        hocket("lab", "down", "--name", "live")
    Path(sys.argv[1]).write_text(json.dumps(found))


def setting(network: Path, policy: str) -> tuple[str, ...]:
    """The options that a live run and a simulated one share."""
    placed = ("--placement", "lwf-1", "--policy", policy, "--servers", "4", "--gpus-per-server", "2")
    return (*placed, "--network", str(network), "--chunk", CHUNK, "--json")


def simulated(jobs: list[dict[str, Any]], folder: Path, network: Path, policy: str) -> Any:
    """What is predicted of them."""
    path = folder / "simulated.json"
    path.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": jobs}))
    return hocket("cluster", "simulate", str(path), *setting(network, policy))


def profile(job: dict[str, Any], folder: Path, network: Path) -> dict[str, Any]:
    """The job with what it takes longer alone than it should, as part of its forward passes."""
    alone = {**job, "arrival_s": 0.0}
    path = folder / "alone.json"
    path.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": [alone]}))
    ran = hocket("cluster", "run", str(path), *setting(network, POLICIES[0]), "--lab", "live")
    expected = simulated([alone], folder, network, POLICIES[0])
    longer_s = ran["average_jct_s"] - expected["average_jct_s"]
    print(f"{job['id']} alone: {longer_s:+.3f} s of {expected['average_jct_s']:.2f} s", file=sys.stderr)
    return {**job, "forward_s": job["forward_s"] + longer_s / job["iterations"]}


def write_network(path: Path, a_s: float, b_s: float, eta_s: float) -> None:
    """A hocket.network/1 file with a measured AllReduce."""
    reduction = {"workers": 2, "a_s": a_s, "b_s_per_byte": b_s, "eta_s_per_byte": eta_s}
    path.write_text(
        json.dumps({"format": "hocket.network/1", "bandwidth_bps": RATE_BPS, "allreduce": reduction})
    )


if __name__ == "__main__":
    main()
