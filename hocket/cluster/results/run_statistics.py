"""Statistics of a cluster run: the row that ``cluster simulate --json`` prints and reports rank.

Source: Wang et al. 2020, section V-A, "Metrics": completion times (JCT) on average, their median and 95th
percentile, and GPU utilization. Utilization is busy GPU time / (GPUs x makespan).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from hocket.cluster.gpu_type import GpuType
from hocket.errors import FormatError

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster
    from hocket.cluster.engine.scheduling import Scheduling
    from hocket.cluster.jobs import JobSet
    from hocket.cluster.simulator.outages import Outages, OutageToll
    from hocket.cluster.simulator.simulate import ClusterRun, PreemptionToll

Floats = npt.NDArray[np.float64]

# Parts of a job's time, in the order in which they are shown.
PARTS = ("queueing", "computing", "gpu_wait", "transferring", "network_wait")

_BINS = 240


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job: when it came, was placed and ended, on which (server, GPU) pairs, and what it did meanwhile.

    ``queueing_s``: from arrival to placement; ``gpu_wait_s``: launched, or ready to compute and another job
    on its GPU; ``network_wait_s``: ready to transfer, not admitted. With batches that and ``transferring_s``
    count while nothing else of the job goes on. Where servers went down: ``interruptions`` by that; where
    jobs are preempted or resized: ``preemptions``, and how often it has ``shrunk`` and ``grown``; in both
    cases ``lost_s``, on its GPUs for nothing.
    ``gpu_type``: of ``gpus``, "" where nobody names it. ``gpus_min``, ``gpus_max``: of one whose number of
    GPUs was chosen, the least and the most that it could have had.
    """

    id: str
    arrival_s: float
    start_s: float
    finish_s: float
    jct_s: float
    gpus: tuple[tuple[int, int], ...]
    model: str = ""
    queueing_s: float | None = None
    computing_s: float | None = None
    gpu_wait_s: float | None = None
    transferring_s: float | None = None
    network_wait_s: float | None = None
    user: str = ""
    interruptions: int | None = None
    lost_s: float | None = None
    gpu_type: str = ""
    gpus_min: int | None = None
    gpus_max: int | None = None
    preemptions: int | None = None
    shrunk: int | None = None
    grown: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run; ``average_*_s`` are means over its jobs, ``makespan_s`` is the run's own."""

    average_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    gpu_utilization: float
    makespan_s: float
    average_queueing_s: float | None = None
    average_computing_s: float | None = None
    average_gpu_wait_s: float | None = None
    average_transferring_s: float | None = None
    average_network_wait_s: float | None = None


class SimulatedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as simulated, beside its servers and their GPUs; ``chunk_bytes``: of psrsf and srpt.

    ``starvation_s``: after which a job that queues holds GPUs; ``jobs_per_gpu``: the most that share one.
    ``wait_for_faster``: whether jobs wait for types of GPUs on which they are over sooner.
    ``resize``: whether jobs with a range of GPUs have fewer or more while they run.
    ``quotas``: of users the most GPUs that they hold; ``shares``: their weights; ``half_life_s``: after which
    what they have had counts half. ``checkpoint_s``: to save a job that does not say, where jobs are
    preempted or resized.
    ``gpu_types``: so many GPUs of each type, in order; empty: one type that has no name.
    """

    gpu_memory_bytes: float
    chunk_bytes: float
    sharing: str
    racks: int
    oversubscription: float
    startup_s: float
    per_byte_s: float
    contention_per_byte_s: float
    starvation_s: float | None = None
    jobs_per_gpu: int | None = None
    wait_for_faster: bool = False
    resize: bool = False
    quotas: tuple[tuple[str, int], ...] | None = None
    shares: tuple[tuple[str, int], ...] | None = None
    half_life_s: float | None = None
    gpu_types: tuple[GpuType, ...] = ()
    checkpoint_s: float | None = None


class PreemptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The preemptions and resizes of a run, and the GPU hours that they took; None where not measured.

    ``checkpoint_gpu_hours``: of jobs' own GPUs, to save and restore them and to launch them again;
    ``lost_gpu_hours``: of iterations under way.
    """

    preemptions: int
    shrunk: int | None = None
    grown: int | None = None
    checkpoint_gpu_hours: float | None = None
    lost_gpu_hours: float | None = None


class OutageSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Outages as asked for; ``maintenance``: server, from and to."""

    mtbf_s: float | None
    repair_s: float | None
    checkpoint_every_s: float | None
    maintenance: tuple[tuple[int, float, float], ...]


class OutageRow(OutageSetting, frozen=True, kw_only=True):
    """The outages of a run: as asked for, how often a server ``went_down``, and what that cost.

    ``lost_gpu_hours``: that jobs had GPUs for nothing.
    """

    went_down: int
    interruptions: int
    lost_gpu_hours: float


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Completion times that so many percent of the jobs do not exceed."""

    p5_s: float
    p25_s: float
    p75_s: float
    p90_s: float
    p99_s: float


class Contention(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of transfers on the most loaded server, in equal parts of the time from ``begin_s`` on.

    ``mean``: over each part's time; ``most``: at any moment of it.
    """

    begin_s: float
    bin_s: float
    mean: tuple[float, ...]
    most: tuple[int, ...]


class ClusterRow(Figures, frozen=True, kw_only=True):
    """One placement and policy on one job set: the keys of ``cluster simulate --json``.

    ``overlapping``: jobs whose transfers overlap their computing. ``bound_jct_s``: no policy and no placement
    has a lower average on these jobs; None where they were not simulated.
    """

    placement: str
    policy: str
    jobs: tuple[JobRow, ...]
    events: int
    wall_s: float
    source: str = ""
    seed: int = 0
    servers: int | None = None
    gpus_per_server: int | None = None
    setting: SimulatedCluster | None = None
    overlapping: int = 0
    outages: OutageRow | None = None
    preemption: PreemptionRow | None = None
    bound_jct_s: float | None = None
    percentiles: Percentiles | None = None
    contention: Contention | None = None

    @property
    def name(self) -> str:
        """The placement and policy, which tell it from others on the same job set."""
        return f"{self.placement} / {self.policy}"


def setting_of(cluster: Cluster, scheduling: Scheduling) -> SimulatedCluster:
    """The setting with which a run on ``cluster`` is repeated, beside its placement and its policy."""
    return SimulatedCluster(
        gpu_memory_bytes=cluster.gpu_memory_bytes,
        chunk_bytes=float(scheduling.chunk_bytes),
        sharing=cluster.sharing,
        racks=cluster.racks,
        oversubscription=cluster.oversubscription,
        startup_s=cluster.startup_s,
        per_byte_s=cluster.per_byte_s,
        contention_per_byte_s=cluster.eta_s,
        starvation_s=scheduling.starvation_s,
        jobs_per_gpu=scheduling.jobs_per_gpu,
        wait_for_faster=scheduling.wait_for_faster,
        resize=scheduling.resize,
        quotas=tuple(scheduling.quotas.items()) or None,
        shares=tuple(scheduling.shares.items()) or None,
        half_life_s=scheduling.half_life_s,
        gpu_types=cluster.gpu_types,
        checkpoint_s=scheduling.checkpoint_s,
    )


def figures_of(run: ClusterRun) -> Figures:
    """The figures of ``run``, over all its jobs."""
    return Figures(**_figures(run))


def _figures(run: ClusterRun) -> dict[str, float]:
    jct_s = run.finish_s - run.arrival_s
    averages = {f"average_{part}_s": float(getattr(run, f"{part}_s").mean()) for part in PARTS}
    return {
        "average_jct_s": float(jct_s.mean()),
        "median_jct_s": float(np.median(jct_s)),
        "p95_jct_s": float(np.percentile(jct_s, 95)),
        "gpu_utilization": float(run.gpu_utilization),
        "makespan_s": float(run.makespan_s),
        **averages,
    }


def cluster_row(run: ClusterRun, jobs: JobSet, cluster: Cluster) -> ClusterRow:
    """The row of ``run``, of ``jobs`` on ``cluster``; contention where the run recorded it."""
    jct_s = run.finish_s - run.arrival_s
    parts: dict[str, Floats] = {f"{part}_s": getattr(run, f"{part}_s") for part in PARTS}
    toll, types = run.toll, cluster.type_names()
    first = [server * cluster.gpus_per_server + gpu for (server, gpu), *_ in run.gpus]
    preempted = run.preemptions
    losing = toll or preempted
    rows = tuple(
        JobRow(
            id=job.id,
            model=job.model,
            arrival_s=float(run.arrival_s[i]),
            start_s=float(run.start_s[i]),
            finish_s=float(run.finish_s[i]),
            jct_s=float(jct_s[i]),
            gpus=run.gpus[i],
            gpu_type=types[first[i]],
            user=job.user,
            gpus_min=job.fewest_gpus if job.fewest_gpus < job.gpus else None,
            gpus_max=job.gpus if job.fewest_gpus < job.gpus else None,
            interruptions=None if toll is None else int(toll.interruptions[i]),
            lost_s=None if losing is None else float(losing.lost_s[i]),
            preemptions=None if preempted is None else int(preempted.times[i]),
            shrunk=int(preempted.shrunk[i]) if preempted is not None and run.scheduling.resize else None,
            grown=int(preempted.grown[i]) if preempted is not None and run.scheduling.resize else None,
            **{key: float(values[i]) for key, values in parts.items()},
        )
        for i, job in enumerate(jobs.jobs)
    )
    p5, p25, p75, p90, p99 = np.percentile(jct_s, (5, 25, 75, 90, 99)).tolist()
    return ClusterRow(
        placement=run.scheduling.placement,
        policy=run.scheduling.policy,
        jobs=rows,
        **_figures(run),
        percentiles=Percentiles(p5_s=p5, p25_s=p25, p75_s=p75, p90_s=p90, p99_s=p99),
        contention=None if run.levels is None else _contention(run.levels, float(run.finish_s.max())),
        source=jobs.source,
        seed=run.scheduling.seed,
        servers=cluster.num_servers,
        gpus_per_server=cluster.gpus_per_server,
        setting=setting_of(cluster, run.scheduling),
        overlapping=sum(bool(job.batches) for job in jobs.jobs),
        outages=None if toll is None else outage_row(toll),
        preemption=None if preempted is None else preemption_row(preempted, run.scheduling.resize),
        events=run.events,
        wall_s=run.wall_s,
    )


def preemption_row(toll: PreemptionToll, resize: bool) -> PreemptionRow:
    """The toll of preemption in a run, and of resizing if jobs were to be resized."""
    return PreemptionRow(
        preemptions=int(toll.times.sum()),
        shrunk=int(toll.shrunk.sum()) if resize else None,
        grown=int(toll.grown.sum()) if resize else None,
        checkpoint_gpu_hours=float(toll.checkpoints_gpu_s.sum()) / 3600,
        lost_gpu_hours=float(toll.lost_gpu_s.sum()) / 3600,
    )


def outage_setting(outages: Outages) -> OutageSetting:
    """The setting with which ``outages`` are drawn anew, beside their seed."""
    return OutageSetting(
        mtbf_s=outages.mtbf_s,
        repair_s=None if outages.mtbf_s is None else outages.repair_s,
        checkpoint_every_s=outages.checkpoint_every_s,
        maintenance=tuple((each.server, each.from_s, each.to_s) for each in outages.maintenance),
    )


def outage_row(toll: OutageToll) -> OutageRow:
    """The row of a run's outages."""
    return OutageRow(
        **msgspec.structs.asdict(outage_setting(toll.outages)),
        went_down=toll.went_down,
        interruptions=int(toll.interruptions.sum()),
        lost_gpu_hours=float(toll.lost_gpu_s.sum()) / 3600,
    )


def _contention(levels: Floats, end_s: float) -> Contention | None:
    """``levels``, (n, 2) of a time and the level from then on, over equal parts of their time.

    None where nothing was recorded, or all of it at one moment.
    """
    if not len(levels) or end_s <= levels[0, 0]:
        return None
    times, values = levels[:, 0], levels[:, 1]
    edges = np.linspace(times[0], end_s, _BINS + 1)
    # The integral of a step function, at its steps and at the edges of the parts.
    integral = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    at = np.searchsorted(times, edges, side="right") - 1
    sums = integral[at] + values[at] * (edges - times[at])
    bin_s = float(edges[1] - edges[0])
    most = values[at[:-1]].copy()
    np.maximum.at(most, np.clip(np.searchsorted(edges, times, side="right") - 1, 0, _BINS - 1), values)
    mean = np.diff(sums) / bin_s
    return Contention(
        begin_s=float(times[0]),
        bin_s=bin_s,
        mean=tuple(np.round(mean, 6).tolist()),
        most=tuple(int(level) for level in most),
    )


def check_cluster_row(row: ClusterRow, source: str, field: str = "") -> None:
    """Refuse a row without a job, with a time or count below 0, or with jobs that end before they begin.

    Raises
    ------
    FormatError
        Naming ``source``, the key below ``field``, and the rule.
    """
    prefix = f"{field}." if field else ""
    if not row.jobs:
        raise FormatError(source, f"{prefix}jobs", "is empty; a result has at least one job")
    for key, value in _numbers(row):
        if value < 0:
            raise FormatError(source, prefix + key, f"{value} is negative; it must be 0 or more")
    for key, value in _numbers(row.setting) if row.setting is not None else ():
        if value < 0:
            raise FormatError(source, f"{prefix}setting.{key}", f"{value} is negative; it must be 0 or more")
    for key, value in _numbers(row.outages) if row.outages is not None else ():
        if value < 0:
            raise FormatError(source, f"{prefix}outages.{key}", f"{value} is negative; it must be 0 or more")
    for key, value in _numbers(row.preemption) if row.preemption is not None else ():
        if value < 0:
            raise FormatError(
                source, f"{prefix}preemption.{key}", f"{value} is negative; it must be 0 or more"
            )
    for i, job in enumerate(row.jobs):
        for key, value in _numbers(job):
            if value < 0:
                raise FormatError(source, f"{prefix}jobs[{i}].{key}", f"{value} is negative (job '{job.id}')")
        if not job.arrival_s <= job.start_s <= job.finish_s:
            rule = f"{job.finish_s} is not after start_s and arrival_s in order (job '{job.id}')"
            raise FormatError(source, f"{prefix}jobs[{i}].finish_s", rule)
        if any(server < 0 or gpu < 0 for server, gpu in job.gpus):
            raise FormatError(source, f"{prefix}jobs[{i}].gpus", f"has a negative number (job '{job.id}')")


def _numbers(struct: Any) -> list[tuple[str, float]]:
    fields = msgspec.structs.asdict(struct).items()
    return [(key, value) for key, value in fields if isinstance(value, int | float)]
