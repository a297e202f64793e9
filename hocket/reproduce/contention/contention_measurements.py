"""Runs behind the contention paper's tables: placements and policies over many job sets of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.results.paired import PairedRow, SweepRow, SweepRun, paired_rows, sweep_row
from hocket.cluster.results.run_statistics import figures_of
from hocket.cluster.simulator.simulate import simulate
from hocket.cluster.workloads import paper_workload
from hocket.cluster.workloads.trained_models import TABLE_III, ModelProfile
from hocket.graph import Phase
from hocket.network import NetworkFile
from hocket.reproduce.loopback import measured_network
from hocket.reproduce.setting import Progress, ReproductionSetting, spread
from hocket.reproduce.steps import derived

PLACEMENTS = ("rand", "ff", "ls", "lwf-1")
KAPPAS = ("lwf-1", "lwf-2", "lwf-4", "lwf-8")
POLICIES = ("srsf-1", "srsf-2", "srsf-3", "ada-srsf")
OURS = "ada-srsf"
BEST = "lwf-1"
NUM_JOBS, SERVERS, GPUS_PER_SERVER = 160, 16, 4
_ZOO = {"vgg16": "vgg16", "resnet50": "resnet50_v1", "inception_v3": "inception_v3", "lstm_ptb": "lstm_ptb"}
_BATCH_SIZES = {"vgg16": 16, "resnet50": 16, "inception_v3": 16, "lstm_ptb": 64}


@dataclass(frozen=True, kw_only=True)
class JobSetRun:
    """One placement and policy on one job set: its figures, every job's completion time, every GPU's use."""

    placement: str
    policy: str
    run: SweepRun
    jct_s: tuple[float, ...]
    gpu_utilization: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class MeasuredModel:
    """A model of Table III, the paper's and ours: bytes, and seconds of both passes on a V100 by roofline."""

    paper: ModelProfile
    batch_size: int
    size_bytes: float
    forward_s: float
    backward_s: float


@dataclass(frozen=True, kw_only=True)
class ContentionMeasurements:
    """Everything; ``network``: reductions between processes of this machine (Fig. 2)."""

    runs: tuple[JobSetRun, ...]
    steps: tuple[MeasuredModel, ...]
    network: NetworkFile

    @cached_property
    def rows(self) -> dict[tuple[str, str], SweepRow]:
        """The means over job sets of each placement and policy."""
        return {
            (placement, policy): sweep_row(
                placement, policy, [each.run for each in self.of(placement, policy)]
            )
            for placement, policy in dict.fromkeys((each.placement, each.policy) for each in self.runs)
        }

    def of(self, placement: str, policy: str) -> list[JobSetRun]:
        """The runs of a placement and policy, a job set each."""
        return [each for each in self.runs if (each.placement, each.policy) == (placement, policy)]

    def against(self, ours: tuple[str, str], than: tuple[str, str]) -> PairedRow:
        """The difference of ``ours``, a placement and policy, from ``than`` on the same job sets."""
        (row,) = paired_rows((self.rows[than], self.rows[ours]))
        return row


def measure(setting: ReproductionSetting, progress: Progress | None) -> ContentionMeasurements:
    """Measure reductions here, then simulate all job sets, spread over the cores."""
    network = measured_network(setting, progress)
    settings = [(placement, OURS) for placement in dict.fromkeys((*PLACEMENTS, *KAPPAS))]
    settings += [(BEST, policy) for policy in POLICIES if policy != OURS]
    seeds = range(setting.seed, setting.seed + setting.job_sets)
    tasks = [(placement, policy, seed) for placement, policy in settings for seed in seeds]
    runs = spread(run_of, tasks, progress, "Contention: job sets")
    return ContentionMeasurements(
        runs=tuple(runs), steps=tuple(step_of(model) for model in TABLE_III), network=network
    )


def run_of(placement: str, policy: str, seed: int, num_jobs: int = NUM_JOBS) -> JobSetRun:
    """The paper's kind of job set, drawn with ``seed``, on its cluster."""
    jobs = paper_workload(seed=seed, num_jobs=num_jobs)
    cluster = Cluster(num_servers=SERVERS, gpus_per_server=GPUS_PER_SERVER)
    run = simulate(jobs, cluster, Scheduling(placement=placement, policy=policy, seed=seed))
    busy_s = np.zeros((SERVERS, GPUS_PER_SERVER))
    for gpus, computing_s in zip(run.gpus, run.computing_s.tolist(), strict=True):
        for server, gpu in gpus:
            busy_s[server, gpu] += computing_s
    figures = msgspec.structs.asdict(figures_of(run))
    return JobSetRun(
        placement=placement,
        policy=policy,
        run=SweepRun(**figures, job_set=jobs.source, seed=seed, events=run.events, wall_s=run.wall_s),
        jct_s=tuple((run.finish_s - run.arrival_s).tolist()),
        gpu_utilization=tuple((busy_s / run.makespan_s).ravel().tolist()),
    )


def pooled(runs: Sequence[JobSetRun], what: str) -> list[float]:
    """``jct_s`` or ``gpu_utilization`` of all ``runs``, ascending."""
    return sorted(value for each in runs for value in getattr(each, what))


def step_of(paper: ModelProfile) -> MeasuredModel:
    """The zoo's model on a V100 by roofline, at the batch size of Table III."""
    graph = derived(_ZOO[paper.name], _BATCH_SIZES[paper.name], device="v100")
    return MeasuredModel(
        paper=paper,
        batch_size=graph.batch_size,
        size_bytes=float(graph.parameter_bytes.sum()),
        forward_s=float(graph.oracle_s[graph.phases == Phase.FORWARD].sum()),
        backward_s=float(graph.oracle_s[graph.phases == Phase.BACKWARD].sum()),
    )
