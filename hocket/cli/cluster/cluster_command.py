"""``hocket cluster``: many jobs on one cluster, simulated on a job set or on many of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import heading
from hocket.cli.cluster import client_commands, job_set_commands, live_commands
from hocket.cli.cluster.cluster_options import (
    Chunk,
    GpusPerServer,
    Memory,
    NetworkPath,
    Oversubscription,
    Racks,
    Servers,
    Sharing,
    make_cluster,
)
from hocket.cli.cluster.cluster_settings import assumed_of_cluster, cluster_settings
from hocket.cli.cluster.job_set_commands import drawn_jobs
from hocket.cli.command_help import App
from hocket.cli.name_options import complete_cluster_policy, complete_placement, lowercase
from hocket.cli.panels import GENERAL, JOBS, OUTPUT, SCHEDULING, option
from hocket.cli.printing import note, print_json, print_table, progress
from hocket.errors import HocketError

if TYPE_CHECKING:
    pass

app = App(help="Many jobs on one cluster: which GPUs each gets, and who computes and transfers when.")

app.command()(live_commands.run)
app.command()(live_commands.serve)
app.command()(client_commands.submit)
app.command()(client_commands.status)
app.command()(client_commands.cancel)
app.command()(client_commands.drain)


@app.command()
def simulate(
    context: typer.Context,
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="A hocket.jobs/1 file (.json or .json.zst).")],
    placement: Annotated[
        str,
        option(
            panel=SCHEDULING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_placement,
            help="rand, ff, ls, lwf-K, ...; an unknown name lists them.",
        ),
    ],
    policy: Annotated[
        str,
        option(
            panel=SCHEDULING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_cluster_policy,
            help="srsf-N, ada-srsf, ...; an unknown name lists them.",
        ),
    ],
    servers: Servers = 16,
    gpus_per_server: GpusPerServer = 4,
    memory: Memory = "16GB",
    chunk: Chunk = "4MB",
    sharing: Sharing = "equation5",
    racks: Racks = 1,
    oversubscription: Oversubscription = 1.0,
    network_file: NetworkPath = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    timeline: Annotated[
        Path | None, option(panel=OUTPUT, metavar="FILE", help="Write a trace of the tasks for Perfetto.")
    ] = None,
    timeline_from: Annotated[
        str | None,
        option(
            panel=OUTPUT,
            rare=True,
            metavar="TIME",
            help="Where that begins, after the clock's 0: 600s.",
            show_default="at 0s",
        ),
    ] = None,
) -> None:
    """Simulate a job set under one placement and one policy."""
    from hocket.cluster.jobs_file import read_jobs
    from hocket.cluster.results.recorded import recorded_document
    from hocket.cluster.results.run_statistics import cluster_row
    from hocket.cluster.simulator.simulate import simulate as run
    from hocket.document import write_json
    from hocket.network import parse_bytes, parse_duration
    from hocket.origin import origin
    from hocket.report.cluster_table import cluster_table

    if timeline is None and timeline_from is not None:
        raise HocketError(f"--timeline-from {timeline_from} is where a timeline begins; give --timeline FILE")
    if timeline is not None:
        options.check_beside_result(timeline, *options.inputs(jobs, network_file))
    cluster = make_cluster(
        servers, gpus_per_server, memory, sharing, racks, oversubscription, network_file=network_file
    )
    job_set = read_jobs(jobs)
    with progress("simulating"):
        result = run(
            job_set,
            cluster,
            placement=placement,
            policy=policy,
            seed=seed,
            chunk_bytes=parse_bytes(chunk),
            record=timeline is not None,
            record_from_s=parse_duration(timeline_from or "0s"),
        )
    row = cluster_row(result, job_set, cluster, seed)
    made = {"origin": msgspec.to_builtins(origin())}
    if timeline is not None:
        assert result.timeline is not None
        write_json(recorded_document(result.timeline, row) | made, timeline)
    if json:
        print_json({**msgspec.to_builtins(row), **made, "assumed": assumed_of_cluster(context, cluster)})
    else:
        print(heading(cluster_settings(context, cluster)))
        print_table(cluster_table([row]))


app.command()(job_set_commands.generate)
app.command("import")(job_set_commands.import_)


@app.command()
def sweep(
    context: typer.Context,
    jobs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="JOBS...", help="hocket.jobs/1 files; else --workload."),
    ] = None,
    workload: Annotated[
        str | None,
        option(panel=JOBS, metavar="NAME", callback=lowercase, help="Draw job sets instead: paper."),
    ] = None,
    seeds: Annotated[
        int | None,
        option(panel=JOBS, metavar="N", help="How many job sets to draw, from --seed on.", show_default="20"),
    ] = None,
    num_jobs: Annotated[
        int | None,
        option("--jobs", panel=JOBS, metavar="N", help="How many jobs of a workload.", show_default="160"),
    ] = None,
    sizes: Annotated[
        Literal["paper", "wide"] | None,
        option(panel=JOBS, help="Of a workload's models.", show_default="paper"),
    ] = None,
    period: Annotated[
        str | None,
        option(
            panel=JOBS,
            rare=True,
            metavar="TIME",
            help="Over which a workload's jobs arrive.",
            show_default="1200s",
        ),
    ] = None,
    overlap: job_set_commands.Overlap = False,
    placements: Annotated[
        str,
        option(
            panel=SCHEDULING,
            metavar="LIST",
            callback=lowercase,
            autocompletion=complete_placement,
            help="Several by commas.",
        ),
    ] = "lwf-1",
    policies: Annotated[
        str,
        option(
            panel=SCHEDULING,
            metavar="LIST",
            callback=lowercase,
            autocompletion=complete_cluster_policy,
            help="Several by commas; others are compared with the first.",
        ),
    ] = ("srsf-1,ada-srsf,psrsf"),
    servers: Servers = 16,
    gpus_per_server: GpusPerServer = 4,
    memory: Memory = "16GB",
    chunk: Chunk = "4MB",
    sharing: Sharing = "equation5",
    racks: Racks = 1,
    oversubscription: Oversubscription = 1.0,
    network_file: NetworkPath = None,
    engine: Annotated[
        Literal["processes", "ray"],
        option(panel=GENERAL, rare=True, help="All cores of this machine, or a Ray cluster."),
    ] = "processes",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Compare placements and policies over many job sets, each on the same ones."""
    from hocket.cluster.jobs_file import read_jobs
    from hocket.cluster.results.sweep import sweep as run
    from hocket.cluster.workloads import overlapped
    from hocket.network import parse_bytes
    from hocket.report.cluster_table import paired_table, sweep_table

    if (workload is None) == (not jobs):
        raise HocketError("a sweep takes either JOBS files or --workload paper; give one of them")
    cluster = make_cluster(
        servers, gpus_per_server, memory, sharing, racks, oversubscription, network_file=network_file
    )
    if workload is not None:
        seeds = 20 if seeds is None else seeds
        if seeds < 1:
            raise HocketError(f"{seeds} seeds are no job set; give at least 1")
        drawn = range(seed, seed + seeds)
        num_jobs = 160 if num_jobs is None else num_jobs
        job_sets = [
            drawn_jobs(workload, each, num_jobs, sizes or "paper", period or "1200s") for each in drawn
        ]
        if overlap:
            costs = {"startup_s": cluster.startup_s, "per_byte_s": cluster.per_byte_s}
            job_sets = [overlapped(each, **costs) for each in job_sets]
    else:
        of_workloads = {
            "seeds": seeds,
            "jobs": num_jobs,
            "sizes": sizes,
            "period": period,
            "overlap": overlap,
        }
        given = [f"--{name}" for name, value in of_workloads.items() if value not in (None, False)]
        if given:
            raise HocketError(
                f"{', '.join(given)}: JOBS files say so themselves; leave it out, or give --workload"
            )
        job_sets = [read_jobs(path) for path in jobs or ()]
        drawn = range(seed, seed + len(job_sets))
    with progress("simulating") as report:
        found = run(
            job_sets,
            cluster,
            placements=placements.split(","),
            policies=policies.split(","),
            seeds=drawn,
            chunk_bytes=parse_bytes(chunk),
            engine=engine,
            progress=report,
        )
    if json:
        print_json({**msgspec.to_builtins(found), "assumed": assumed_of_cluster(context, cluster)})
        return
    print(heading(cluster_settings(context, cluster)))
    print_table(sweep_table(found))
    first = found.rows[0]
    paired = paired_table(found)
    if paired is not None:
        note(f"against {first.placement} / {first.policy}, job set by job set:")
        print_table(paired)
