"""``hocket cluster sweep``: placements and policies over many job sets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import heading
from hocket.cli.cluster.cluster_options import (
    PLACEMENT,
    POLICY,
    CheckpointOptions,
    QueueOptions,
)
from hocket.cli.cluster.cluster_settings import assumed_of_cluster, cluster_settings
from hocket.cli.cluster.job_set_commands import Overlap, drawn_jobs
from hocket.cli.cluster.outage_options import FailingClusterOptions
from hocket.cli.name_options import lowercase
from hocket.cli.option_groups import grouped
from hocket.cli.panels import GENERAL, JOBS, option
from hocket.cli.printing import note, print_json, print_table, progress
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster
    from hocket.cluster.engine.scheduling import Scheduling
    from hocket.cluster.jobs import JobSet


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """Options for a workload that job sets are drawn from."""

    workload: Annotated[
        str | None,
        option(panel=JOBS, metavar="NAME", callback=lowercase, help="Draw job sets instead: paper."),
    ] = None
    seeds: Annotated[
        int | None,
        option(panel=JOBS, metavar="N", help="Job sets to draw, from --seed on.", show_default="20"),
    ] = None
    num_jobs: Annotated[
        int | None,
        option("--jobs", panel=JOBS, metavar="N", help="Jobs of a workload.", show_default="160"),
    ] = None
    sizes: Annotated[
        Literal["paper", "wide"] | None,
        option(panel=JOBS, help="Of a workload's models.", show_default="paper"),
    ] = None
    period: Annotated[
        str | None,
        option(
            panel=JOBS,
            rare=True,
            metavar="TIME",
            help="Over which a workload's jobs arrive.",
            show_default="1200s",
        ),
    ] = None
    overlap: Overlap = False

    def drawn(self, workload: str, seed: int, cluster: Cluster) -> list[JobSet]:
        """The job sets of ``workload``, one for each seed from ``seed`` on."""
        from hocket.cluster.workloads import with_overlap

        seeds = 20 if self.seeds is None else self.seeds
        if seeds < 1:
            raise HocketError(f"{seeds} seeds are no job set; give at least 1")
        num_jobs = 160 if self.num_jobs is None else self.num_jobs
        sizes, period = self.sizes or "paper", self.period or "1200s"
        job_sets = [drawn_jobs(workload, seed + each, num_jobs, sizes, period) for each in range(seeds)]
        if not self.overlap:
            return job_sets
        costs = {"startup_s": cluster.startup_s, "per_byte_s": cluster.per_byte_s}
        return [with_overlap(each, **costs) for each in job_sets]

    def check_beside_files(self) -> None:
        """Refuse what JOBS files say themselves."""
        of_workloads = {
            "seeds": self.seeds,
            "jobs": self.num_jobs,
            "sizes": self.sizes,
            "period": self.period,
            "overlap": self.overlap,
        }
        given = [f"--{name}" for name, value in of_workloads.items() if value not in (None, False)]
        if given:
            raise HocketError(
                f"{', '.join(given)}: JOBS files say so themselves; leave it out, or give --workload"
            )


@dataclass(frozen=True, kw_only=True)
class ComparedOptions(CheckpointOptions, QueueOptions):
    """Options for the placements and policies that are compared."""

    placements: Annotated[str, option(metavar="LIST", help="Several by commas.", **PLACEMENT)] = "lwf-1"
    policies: Annotated[
        str,
        option(metavar="LIST", help="Several by commas; others are compared with the first.", **POLICY),
    ] = "srsf-1,ada-srsf,psrsf"

    def schedulings(self, seed: int, chunk_bytes: float) -> list[Scheduling]:
        """Every placement with every policy."""
        from hocket.cluster.engine.policies.named_policies import policy_of

        policies = self.policies.split(",")
        sharing = [policy for policy in policies if policy_of(policy).by_user] or policies
        preempting = [policy for policy in policies if self.resize or policy_of(policy).requeues] or policies
        without = dataclasses.replace(self, shares=None, half_life=None)
        free = CheckpointOptions(resize=self.resize)
        return [
            (self if policy in preempting else free).costing(
                (self if policy in sharing else without).of(placement, policy, seed, chunk_bytes)
            )
            for placement in self.placements.split(",")
            for policy in policies
        ]


@dataclass(frozen=True, kw_only=True)
class SweepRuns:
    """Options for the runs of a sweep: the cores they take, and the first of their seeds."""

    engine: Annotated[
        Literal["processes", "ray"],
        option(panel=GENERAL, rare=True, help="All cores of this machine, or a Ray cluster."),
    ] = "processes"
    seed: options.Seed = 0


@grouped
def sweep(
    context: typer.Context,
    jobs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="JOBS...", help="hocket.jobs/1 files; else --workload."),
    ] = None,
    *,
    drawing: WorkloadOptions,
    compared: ComparedOptions,
    machines: FailingClusterOptions,
    runs: SweepRuns,
    json: options.Json = False,
) -> None:
    """Compare placements and policies over many job sets, each on the same ones."""
    from hocket.cluster.engine.assumptions import assumptions
    from hocket.cluster.jobs_file import read_jobs
    from hocket.cluster.results.sweep import sweep as run
    from hocket.report.cluster_table import bound_line, paired_table, sweep_table

    if (drawing.workload is None) == (not jobs):
        raise HocketError("a sweep takes either JOBS files or --workload paper; give one of them")
    cluster, down = machines.cluster(), machines.outages(runs.seed)
    if drawing.workload is not None:
        job_sets = drawing.drawn(drawing.workload, runs.seed, cluster)
    else:
        drawing.check_beside_files()
        job_sets = [read_jobs(path) for path in jobs or ()]
    schedulings = compared.schedulings(runs.seed, machines.chunk_bytes())
    with progress("simulating") as report:
        found = run(
            [(job_set, runs.seed + i) for i, job_set in enumerate(job_sets)],
            cluster,
            schedulings=schedulings,
            outages=down,
            engine=runs.engine,
            progress=report,
        )
    unsaid = [assumptions(job_set, cluster, schedulings) for job_set in job_sets]
    if json:
        assumed = assumed_of_cluster(context, cluster, unsaid) | machines.assumed(context)
        print_json({**msgspec.to_builtins(found), "assumed": assumed})
        return
    print(heading([*cluster_settings(context, cluster), *machines.settings(context)]))
    print_table(sweep_table(found))
    for line in dict.fromkeys(line for each in unsaid for line in each.values()):
        note(line)
    first = found.rows[0]
    best = min(found.rows, key=lambda row: row.average_jct_s.mean)
    print(f"{best.placement} / {best.policy}: {bound_line(best.average_jct_s.mean, found.bound_jct_s.mean)}")
    paired = paired_table(found)
    if paired is not None:
        note(f"against {first.placement} / {first.policy}, job set by job set:")
        print_table(paired)
