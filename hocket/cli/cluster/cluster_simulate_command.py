"""``hocket cluster simulate``: many jobs on one cluster, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import heading
from hocket.cli.cluster.cluster_options import SimulatedSchedulingOptions
from hocket.cli.cluster.cluster_settings import assumed_of_cluster, cluster_settings
from hocket.cli.cluster.outage_options import FailingClusterOptions
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, option
from hocket.cli.printing import note, print_json, print_table, progress
from hocket.errors import HocketError


@dataclass(frozen=True, kw_only=True)
class TimelineOptions:
    """Options for a trace of the tasks."""

    timeline: Annotated[
        Path | None, option(panel=OUTPUT, metavar="FILE", help="Write a trace of the tasks for Perfetto.")
    ] = None
    timeline_from: Annotated[
        str | None,
        option(
            panel=OUTPUT,
            rare=True,
            metavar="TIME",
            help="Where that begins, after the clock's 0: 600s.",
            show_default="at 0s",
        ),
    ] = None

    def check(self, inputs: list[Path]) -> None:
        """Refuse a trace that may not be written, and the beginning of none."""
        if self.timeline is not None:
            options.check_beside_result(self.timeline, *inputs)
        elif self.timeline_from is not None:
            raise HocketError(
                f"--timeline-from {self.timeline_from} is where a timeline begins; give --timeline FILE"
            )


@grouped
def simulate(
    context: typer.Context,
    jobs: Annotated[
        Path, typer.Argument(metavar="JOBS", help="A hocket.jobs/1 file, JSON or CSV; may be .gz or .zst.")
    ],
    scheduling: SimulatedSchedulingOptions,
    machines: FailingClusterOptions,
    *,
    seed: options.Seed = 0,
    json: options.Json = False,
    trace: TimelineOptions,
) -> None:
    """Simulate a job set under one placement and one policy."""
    from hocket.cluster.engine.assumptions import assumptions
    from hocket.cluster.engine.awaited_types import check_types_differ
    from hocket.cluster.engine.users import check_users
    from hocket.cluster.jobs_file import read_jobs
    from hocket.cluster.results.jct_bound import bound_jct_s
    from hocket.cluster.results.recorded import recorded_document
    from hocket.cluster.results.run_statistics import cluster_row
    from hocket.cluster.simulator.simulate import TimelineWindow
    from hocket.cluster.simulator.simulate import simulate as run
    from hocket.document import write_json
    from hocket.network import parse_duration
    from hocket.origin import origin
    from hocket.report.cluster_table import bound_line, cluster_table

    trace.check(options.inputs(jobs, machines.network_file))
    cluster, down = machines.cluster(), machines.outages(seed)
    job_set = read_jobs(jobs)
    window = TimelineWindow(from_s=parse_duration(trace.timeline_from or "0s"))
    chosen = scheduling.scheduling(seed, machines.chunk_bytes())
    check_users(chosen, job_set.jobs)
    check_types_differ(chosen, cluster)
    with progress("simulating"):
        result = run(
            job_set,
            cluster,
            chosen,
            record=window if trace.timeline is not None else None,
            outages=down,
        )
    bound_s = bound_jct_s(job_set, cluster, result.scheduling.jobs_per_gpu)
    row = msgspec.structs.replace(cluster_row(result, job_set, cluster), bound_jct_s=bound_s)
    unsaid = assumptions(job_set, cluster, [result.scheduling])
    made = {"origin": msgspec.to_builtins(origin())}
    if trace.timeline is not None:
        assert result.timeline is not None
        write_json(recorded_document(result.timeline, row) | made, trace.timeline)
    if json:
        assumed = assumed_of_cluster(context, cluster, [unsaid]) | machines.assumed(context)
        print_json({**msgspec.to_builtins(row), **made, "assumed": assumed})
    else:
        print(heading([*cluster_settings(context, cluster), *machines.settings(context)]))
        print_table(cluster_table([row]))
        print(bound_line(row.average_jct_s, bound_s))
        for line in unsaid.values():
            note(line)
