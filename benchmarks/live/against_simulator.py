"""Live runs on a lab beside the simulator's predictions.

    python benchmarks/live/against_simulator.py OUT.json [--jobs trained] [--policies srpt,fifo] [--rounds 2]

First the cost of a transfer is measured (contention.py): Eq. 5's a, b and eta. Then each job runs twice on
two nodes, its profile: what three iterations take beside their transfers says how long its processes take to
start and to end (the median over jobs, as their programs start alike: an iteration's part is a small
difference otherwise), and what all of its iterations take beside that is computing to the simulator,
questions at the gate among it. At last all of them run together on four nodes, under each policy in turns,
and are simulated with that network and those profiles. Nothing is fitted to these runs. A run is repeated, up
to three times, where other virtual machines had more than a twentieth of the processors.

``replayed`` are ten jobs that sleep for their computing, two slots a node. ``trained`` are six that train
small networks and three that are replayed, one slot a node: at most four ranks compute at a time, and the
network, which is slow beside them, leaves the two cores idle for most of it. But starting one takes both for
seconds, and what else trains waits. The simulator's nodes have processors of their own, the lab's share two;
so such a job's profile is taken while another one trains on the other two nodes. Ranks that sleep gain from a
real-time priority, ranks that compute must not have one: who wakes to send would wait for their turns to end.
Needs root, as labs do.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from contention import Cost, JobOf, measured
from train import CHUNK_BYTES, gradient_bytes

from hocket.bench.host_noise import stolen_s
from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.policies.named_policies import policy_of
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import ClusterRun, simulate

LAB, SERVERS, PLACEMENT = "live", 4, "lwf-1"
HERE = Path(__file__).parent
DRAWS, OFF = 200, 0.02  # simulations in which each job's times are so much off, and how much
LEAST_S = 1e-3
TRIES, MOST_STOLEN = 3, 0.05
FEW = 3  # iterations, of which the first are as slow as they are: connections are new, a plan is taken
LEAD_S = 10.0  # after which who trains beside a profiled job has started
BESIDE_S, BESIDE_OF = 9.0, 1.2  # for how long it goes on: so long, and the job's transfers so often


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A job set and where it runs; ``alone``, ``together``: what the network is measured with.

    ``chunk_bytes``: where policies that can stop transfers do; None where a transfer goes as a whole.
    ``busy``: whether a job's profile is taken while another job trains.
    """

    rate_bps: float
    gpus_per_server: int
    policies: tuple[str, ...]
    job_of: JobOf
    alone: tuple[float, ...]
    together: tuple[tuple[int, float], ...]
    chunk_bytes: float | None = None
    busy: bool = False

    @property
    def chunk(self) -> float:
        return 64e6 if self.chunk_bytes is None else self.chunk_bytes


def replayed(name: str, size: float, iterations: int) -> dict[str, Any]:
    row = {"id": name, "model": "measured", "gpus": 2, "iterations": iterations, "arrival_s": 0.0}
    return row | {"forward_s": 0.01, "backward_s": 0.01, "size_bytes": size, "memory_bytes": 1.0}


def trained(name: str, size: float, iterations: int) -> dict[str, Any]:
    command = command_of(["linear", round(size / 4000), 1], iterations)
    return replayed(name, size, iterations) | {"command": command, "folder": str(HERE)}


def command_of(program: Sequence[Any], iterations: int) -> list[str]:
    return [sys.executable, str(HERE / "train.py"), *map(str, program), str(iterations)]


def repeated(row: dict[str, Any], iterations: int) -> dict[str, Any]:
    """The job with another number of iterations."""
    program = {"command": [*row["command"][:-1], str(iterations)]} if "command" in row else {}
    return row | {"iterations": iterations} | program


TRIALS = {
    "replayed": Trial(
        rate_bps=250e6,
        gpus_per_server=2,
        policies=("fifo", "srsf-1", "srsf-2", "ada-srsf", "srpt"),
        job_of=replayed,
        alone=(3e6, 8e6, 14e6, 25e6),
        together=((2, 3e6), (2, 14e6), (3, 8e6), (4, 8e6)),
        chunk_bytes=2e6,
    ),
    "trained": Trial(
        rate_bps=25e6,
        gpus_per_server=1,
        policies=("srsf-1", "srsf-2", "ada-srsf", "srpt"),
        job_of=trained,
        alone=(2e6, 4e6, 7.5e6),
        together=((2, 3e6), (2, 6e6), (3, 4e6)),
        chunk_bytes=CHUNK_BYTES,
        busy=True,
    ),
}


def hocket(*arguments: str) -> Any:
    """What a command prints, where it is asked for JSON."""
    ran = subprocess.run(
        [sys.executable, "-m", "hocket", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(ran.stdout) if "--json" in arguments else None


class Trials:
    """Live runs and simulations of one trial, on a lab that is up."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.trial, self._folder = trial, folder
        wanted = [(1, size) for size in trial.alone]
        self.cost = measured(folder, LAB, trial.job_of, (*wanted, *trial.together), rate_bps=trial.rate_bps)
        self.chunk_cost: Cost | None = None
        if trial.chunk_bytes is not None:
            self.chunk_cost = measured(
                folder, LAB, trial.job_of, wanted, rate_bps=trial.rate_bps, chunk_bytes=trial.chunk_bytes
            )

    def cost_under(self, policy: str) -> Cost:
        """What a transfer costs under a policy: as a whole, or in chunks that each ask."""
        chunked = self.chunk_cost is not None and policy_of(policy).preemptive
        return self.chunk_cost if chunked and self.chunk_cost is not None else self.cost

    def live(self, rows: Sequence[dict[str, Any]], policy: str) -> Any:
        """What ``cluster run`` says of the jobs, and ``stolen``: the processors' share that others had."""
        tries: list[Any] = []
        while len(tries) < TRIES and not (tries and tries[-1]["stolen"] <= MOST_STOLEN):
            before_s, began_s = stolen_s(), time.monotonic()
            found = self._run(rows, policy)
            tries.append(found | {"stolen": (stolen_s() - before_s) / (time.monotonic() - began_s)})
        return min(tries, key=lambda found: float(found["stolen"]))

    def _run(self, rows: Sequence[dict[str, Any]], policy: str) -> Any:
        jobs, network = self._folder / "jobs.json", self._folder / "network.json"
        jobs.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": list(rows)}))
        cost = self.cost_under(policy)
        fit = {key: value for key, value in asdict(cost).items() if key != "points"}
        reduction = {"workers": 2, **fit}
        document = {
            **{"format": "hocket.network/1", "bandwidth_bps": self.trial.rate_bps},
            "allreduce": reduction,
        }
        network.write_text(json.dumps(document))
        return hocket(
            *("cluster", "run", str(jobs), "--placement", PLACEMENT, "--policy", policy, "--lab", LAB),
            *("--servers", str(SERVERS), "--gpus-per-server", str(self.trial.gpus_per_server)),
            *("--network", str(network), "--chunk", f"{self.trial.chunk:.0f}B", "--restarts", "0", "--json"),
        )

    def simulated(self, jobs: Sequence[Job], policy: str) -> ClusterRun:
        """What is predicted of them."""
        return simulated(self.trial, self.cost_under(policy), jobs, policy)

    def profiles(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The jobs with what they take beside their transfers, as their start and their computing."""
        busy = next((row for row in rows if "command" in row), None) if self.trial.busy else None
        taken = [(self.beside(repeated(row, FEW), busy), self.beside(row, busy)) for row in rows]
        starts: dict[bool, list[float]] = {True: [], False: []}
        for row, (few_s, all_s) in zip(rows, taken, strict=True):
            longer_s = (all_s - few_s) / (row["iterations"] - FEW)
            starts["command" in row].append(few_s - FEW * longer_s)
        startup_s = {trains: max(0.0, statistics.median(each)) for trains, each in starts.items() if each}
        found = []
        for row, (_, all_s) in zip(rows, taken, strict=True):
            longer_s = (all_s - startup_s["command" in row]) / row["iterations"]
            forward_s = max(LEAST_S, row["forward_s"] + longer_s)
            found.append(row | {"startup_s": startup_s["command" in row], "forward_s": forward_s})
            start_s = found[-1]["startup_s"]
            print(f"{row['id']}: {start_s:.2f} s, {longer_s:+.4f} s an iteration", file=sys.stderr)
        return found

    def beside(self, row: dict[str, Any], busy: dict[str, Any] | None) -> float:
        """How much longer a job takes than its computing, as far as it is known, and its transfers.

        It has two nodes for itself; ``busy``: a job that trains on the other two meanwhile, if any.
        """
        policy, alone = self.trial.policies[0], row | {"arrival_s": 0.0}
        expected_s = average(self.simulated([msgspec.convert(alone, Job)], policy))
        run = [alone]
        if busy is not None:
            long_s = LEAD_S + BESIDE_S + BESIDE_OF * expected_s
            iterations = math.ceil(long_s / (busy["size_bytes"] * self.cost.b_s_per_byte))
            companion = repeated(busy, iterations) | {"id": "companion", "arrival_s": 0.0}
            run = [row | {"arrival_s": LEAD_S}, companion]
        found = self.live(run, policy)
        return float(next(job["jct_s"] for job in found["jobs"] if job["id"] == row["id"])) - expected_s

    def between(self, jobs: Sequence[Job], policy: str) -> tuple[float, float]:
        """Where four of five predictions are if each job's computing and bytes are a little off."""
        draws = np.random.default_rng(0).normal(1.0, OFF, (DRAWS, len(jobs), 2))
        averages = []
        for draw in draws.tolist():
            moved = [
                msgspec.structs.replace(
                    job,
                    forward_s=job.forward_s * computing,
                    backward_s=job.backward_s * computing,
                    size_bytes=job.size_bytes * sent,
                )
                for job, (computing, sent) in zip(jobs, draw, strict=True)
            ]
            averages.append(average(self.simulated(moved, policy)))
        low, high = np.quantile(averages, (0.1, 0.9)).tolist()
        return low, high


def simulated(trial: Trial, cost: Cost, jobs: Sequence[Job], policy: str) -> ClusterRun:
    """The jobs on the trial's cluster, where transfers cost ``cost``."""
    cluster = Cluster(
        num_servers=SERVERS,
        gpus_per_server=trial.gpus_per_server,
        startup_s=cost.a_s,
        per_byte_s=cost.b_s_per_byte,
        contention_per_byte_s=cost.eta_s_per_byte,
    )
    found = JobSet(jobs=tuple(jobs), source="jobs")
    scheduling = Scheduling(placement=PLACEMENT, policy=policy, chunk_bytes=trial.chunk)
    return simulate(found, cluster, scheduling)


def average(run: ClusterRun) -> float:
    """The average job completion time."""
    return float((run.finish_s - run.arrival_s).mean())


def jobs_of(name: str) -> list[dict[str, Any]]:
    """The rows of a job set. Those that train have no times yet: one is measured, for a step is one task."""
    if name == "replayed":
        found: list[dict[str, Any]] = json.loads((HERE / "jobs.json").read_text())["jobs"]
        return found
    rows = []
    for row in json.loads((HERE / "training.json").read_text())["jobs"]:
        if program := row.pop("train", None):
            row |= {"model": program[0], "forward_s": LEAST_S, "backward_s": LEAST_S}
            row |= {"size_bytes": gradient_bytes(*program[:2]), "folder": str(HERE)}
            row["command"] = command_of(program, row["iterations"])
        rows.append(row)
    return rows


def main() -> None:
    """Measure, run, simulate, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", choices=sorted(TRIALS), default="replayed")
    parser.add_argument("--policies", help="some of them: srsf-1,srpt")
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    trial, rows = TRIALS[asked.jobs], jobs_of(asked.jobs)
    policies = asked.policies.split(",") if asked.policies else trial.policies
    temporary = tempfile.TemporaryDirectory()  # until we end
    folder = Path(temporary.name)
    hocket("lab", "up", "--nodes", str(SERVERS), "--rate", f"{trial.rate_bps / 1e6:g}Mbit/s", "--name", LAB)
    try:
        trials = Trials(trial, folder)
        for cost in (trials.cost, trials.chunk_cost):
            print(json.dumps(None if cost is None else asdict(cost)), file=sys.stderr)
        profiled = trials.profiles(rows)
        jobs = [msgspec.convert(row, Job) for row in profiled]
        # Who trains computes as long as it does; who is replayed is told how long.
        run = [known if "command" in row else row for row, known in zip(rows, profiled, strict=True)]
        predicted = {policy: trials.simulated(jobs, policy) for policy in policies}
        between = {policy: trials.between(jobs, policy) for policy in policies}
        runs: dict[str, list[Any]] = {policy: [] for policy in policies}
        for turn in range(asked.rounds):
            for policy in policies if turn % 2 == 0 else policies[::-1]:
                live = trials.live(run, policy)
                runs[policy].append(live)
                ratio = live["average_jct_s"] / average(predicted[policy])
                print(
                    f"{policy} {live['average_jct_s']:.2f} s, x{ratio:.3f}, {live['stolen']:.1%} stolen",
                    file=sys.stderr,
                )
    finally:
        hocket("lab", "down", "--name", LAB)
    found: dict[str, Any] = {"cost": asdict(trials.cost), "profiles": profiled, "policies": {}}
    found["chunk_cost"] = None if trials.chunk_cost is None else asdict(trials.chunk_cost)
    for policy in policies:
        seconds, expected_s = [live["average_jct_s"] for live in runs[policy]], average(predicted[policy])
        low_s, high_s = between[policy]
        found["policies"][policy] = {
            **{"live": runs[policy], "simulated_s": expected_s, "between_s": between[policy]},
            **{key: getattr(predicted[policy], key).tolist() for key in PARTS},
        }
        print(
            f"{policy:9} live {', '.join(f'{s:.2f}' for s in seconds)} s, simulated {expected_s:.2f} s "
            f"[{low_s:.2f}, {high_s:.2f}] {statistics.median(seconds) / expected_s - 1:+.1%}",
            file=sys.stderr,
        )
    asked.out.write_text(json.dumps(found))


PARTS = (
    "start_s",
    "finish_s",
    "queueing_s",
    "computing_s",
    "gpu_wait_s",
    "transferring_s",
    "network_wait_s",
)


if __name__ == "__main__":
    main()
