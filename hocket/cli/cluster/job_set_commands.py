"""``hocket cluster generate`` and ``import``: job sets, drawn from a workload or made of traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hocket.cli import options
from hocket.cli.list_options import numbers_of_names
from hocket.cli.name_options import lowercase
from hocket.cli.option_groups import grouped
from hocket.cli.panels import JOBS, OUTPUT, option
from hocket.cli.printing import note, print_json
from hocket.errors import HocketError, UnknownNameError

if TYPE_CHECKING:
    from hocket.cluster.jobs import JobSet
    from hocket.cluster.workloads import TraceRequest

_WORKLOADS = ("paper",)

Sizes = Annotated[
    Literal["paper", "wide"],
    option(panel=JOBS, help="Of models: Table III's, or log-uniform from 5 to 1500 MB."),
]
Overlap = Annotated[
    bool,
    option(
        "--overlap", panel=JOBS, help="Transfers overlap computing, in buckets of 25 MiB placed by Caramel."
    ),
]
NumJobs = Annotated[
    int, option("--jobs", panel=JOBS, metavar="N", help="Number of jobs; the mix of GPUs stays.")
]
Period = Annotated[str, option(panel=JOBS, metavar="TIME", help="Jobs arrive evenly over this: 1200s.")]
Output = Annotated[
    Path | None,
    option(
        "-o",
        "--output",
        panel=OUTPUT,
        metavar="FILE",
        help="The hocket.jobs/1 file to write; CSV if it ends in .csv.",
        show_default="printed",
    ),
]


def generate(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", callback=lowercase, help="paper: the contention paper's.")
    ],
    output: Output = None,
    jobs: NumJobs = 160,
    sizes: Sizes = "paper",
    period: Period = "1200s",
    overlap: Overlap = False,
    seed: options.Seed = 0,
) -> None:
    """Draw a job set."""
    from hocket.cluster.workloads import with_overlap

    if output is not None:
        options.check_written(output)
    drawn = drawn_jobs(workload, seed, jobs, sizes, period)
    _put(with_overlap(drawn) if overlap else drawn, output)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Options for what is taken of a trace."""

    jobs: Annotated[
        int | None, option(panel=JOBS, metavar="N", help="Only so many, those that arrive first.")
    ] = None
    user: Annotated[
        str | None,
        option(
            panel=JOBS,
            metavar="COLUMN",
            help="Whose a job is: vc (philly, helios); Account, Partition or QOS (slurm).",
            show_default="the trace's user",
        ),
    ] = None
    states: Annotated[
        Literal["all", "finished"],
        option(
            panel=JOBS,
            help="Of jobs: all, failed and cancelled ones as long as they ran, or finished ones alone.",
        ),
    ] = "all"
    attempts: Annotated[
        Literal["all", "last"],
        option(panel=JOBS, help="Of a job that ran again (philly, slurm): the time of all, or of the last."),
    ] = "all"
    qos: Annotated[
        str | None,
        option(
            panel=JOBS,
            rare=True,
            metavar="LIST",
            help="Priorities of qualities of service (slurm, alibaba-2023): high=2,low=0.",
            show_default="slurm: its Priority; alibaba-2023: LS and Guaranteed 2, Burstable 1, BE 0",
        ),
    ] = None
    job_table: Annotated[
        Path | None,
        option(
            panel=JOBS,
            rare=True,
            metavar="FILE",
            help="alibaba: pai_job_table.csv, which has users and submissions.",
        ),
    ] = None
    throughputs: Annotated[
        Path | None, option(panel=JOBS, rare=True, metavar="FILE", help="gavel: its measured throughputs.")
    ] = None
    gpu: Annotated[
        str | None,
        option(
            panel=JOBS,
            rare=True,
            metavar="NAME",
            callback=lowercase,
            help="gavel: the device among them.",
            show_default="all, each job with its speeds on them",
        ),
    ] = None

    def request(self, file: Path, seed: int) -> TraceRequest:
        """The import that the options ask for."""
        from hocket.cluster.workloads import TraceRequest

        return TraceRequest(
            path=file,
            limit=self.jobs,
            seed=seed,
            user=self.user,
            states=self.states,
            attempts=self.attempts,
            qos=None if self.qos is None else numbers_of_names(self.qos, "--qos"),
            job_table=self.job_table,
            throughputs=self.throughputs,
            gpu=self.gpu,
        )


@grouped
def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            callback=lowercase,
            help="tiresias, gavel, philly, alibaba, alibaba-2023, helios, slurm (sacct), or jobs.",
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The trace; may be .gz or .zst.")],
    taken: ImportOptions,
    *,
    output: Output = None,
    seed: options.Seed = 0,
) -> None:
    """Make a job set of a trace, or JSON and CSV of each other, and say what had to be assumed."""
    from hocket.cluster.workloads import import_trace

    if output is not None:
        options.check_written(output, *options.inputs(file, taken.throughputs, taken.job_table))
    imported = import_trace(kind, taken.request(file, seed))
    _put(imported.jobs, output)
    for line in imported.notes:
        note(f"{kind}: {line}")


def drawn_jobs(workload: str, seed: int, jobs: int, sizes: Literal["paper", "wide"], period: str) -> JobSet:
    """A job set of ``workload``; its jobs arrive over ``period``, a text with a unit.

    Raises
    ------
    UnknownNameError, HocketError
        When there is no such workload, or for a period that is none.
    """
    from hocket.cluster.workloads import paper_workload
    from hocket.network import parse_duration

    if workload not in _WORKLOADS:
        raise UnknownNameError("workload", workload, _WORKLOADS)
    period_s = parse_duration(period)
    if period_s != int(period_s):
        raise HocketError(f"period '{period}' is not in whole seconds; give e.g. 1200s")
    return paper_workload(seed=seed, num_jobs=jobs, sizes=sizes, period_s=int(period_s))


def _put(jobs: JobSet, output: Path | None) -> None:
    from hocket.cluster.jobs_file import jobs_document, write_jobs

    if output is None:
        print_json(jobs_document(jobs))
    else:
        write_jobs(jobs, output)
