"""``hocket bench plan`` and ``hocket bench sim``: planners and the simulator by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.answer_settings import (
    assumed,
    heading,
    option_setting,
    step_settings,
)
from hocket.cli.list_options import counts
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.network_options import LinkOptions
from hocket.cli.network_settings import described_network
from hocket.cli.option_groups import grouped
from hocket.cli.panels import BENCHMARK, PLANNING, WORKERS, option
from hocket.cli.printing import print_json, print_table, progress

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="STEP|MODEL|NUMBER...", help="hocket.step/1 files, zoo models, or numbers of operations."
    ),
]
Cores = Annotated[
    int,
    option(
        panel=BENCHMARK,
        rare=True,
        metavar="N",
        help="To run on; planners and the simulator are one thread each.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class BenchWorkers(options.WorkersOptions):
    """Options for workers that plans are timed for, and their servers."""

    workers: options.Workers = 8


@dataclass(frozen=True, kw_only=True)
class PlanTiming:
    """Options for how planners are timed."""

    repeats: Annotated[
        int, option(panel=BENCHMARK, rare=True, metavar="N", help="Times that each plan is made, in turns.")
    ] = 7
    cores: Cores = 1


@grouped
def plan(
    context: typer.Context,
    targets: Targets,
    machines: BenchWorkers,
    links: LinkOptions,
    timing: PlanTiming,
    policies: Annotated[
        str | None,
        option(
            panel=PLANNING,
            metavar="LIST",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Some of them: tic,tac,caramel.",
            show_default="all",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Time planners: seconds a plan, and what that is for each operation of the step."""
    from hocket.bench.speed.speed import bench_plan, on_cores
    from hocket.bench.speed.speed_table import plan_table
    from hocket.bench.speed.timed_steps import load_target
    from hocket.planner import POLICIES

    workers, servers, repeats = machines.workers, machines.servers, timing.repeats
    network, of_network = described_network(context, workers, servers)
    graphs = {target: load_target(target) for target in targets}
    names = list(POLICIES) if policies is None else policies.split(",")
    with on_cores(timing.cores), progress("planning") as report:
        rows = bench_plan(graphs, network, names, repeats=repeats, progress=report)
    if json:
        asked = {"cores": timing.cores, "repeats": repeats, "workers": workers, "servers": servers}
        print_json({**asked, "rows": rows, "assumed": assumed(context, of_network)})
    else:
        print(heading([*step_settings(context, network), *of_network]))
        print_table(plan_table(rows))


@dataclass(frozen=True, kw_only=True)
class SimulatorTiming:
    """Options for how the simulator and the predictor are timed."""

    iterations: Annotated[
        int,
        option(panel=BENCHMARK, rare=True, metavar="N", min=1, help="Steps that the simulator simulates."),
    ] = 10
    steps: Annotated[
        int,
        option(
            panel=BENCHMARK, rare=True, metavar="N", min=1, help="Steps of each worker that are predicted."
        ),
    ] = 100
    repeats: Annotated[
        int, option(panel=BENCHMARK, rare=True, metavar="N", help="Times that each is timed, in turns.")
    ] = 5
    cores: Cores = 1


@dataclass(frozen=True, kw_only=True)
class SimulatorWorkers:
    """Options for the numbers of workers that are simulated, and their servers."""

    workers: Annotated[
        str, option(panel=WORKERS, metavar="LIST", help="Numbers of them: 4, 1,2,4 or 1-16.")
    ] = "1,4,16"
    servers: options.Servers = 1


@grouped
def sim(
    context: typer.Context,
    targets: Targets,
    machines: SimulatorWorkers,
    links: LinkOptions,
    timing: SimulatorTiming,
    policy: Annotated[
        str,
        option(
            panel=PLANNING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Plan by this policy.",
        ),
    ] = "tac",
    json: options.Json = False,
) -> None:
    """Time the simulator and the predictor: events a second, seconds a step, compiling apart."""
    import dataclasses

    from hocket.bench.speed.speed import bench_simulation, on_cores
    from hocket.bench.speed.speed_table import simulation_table
    from hocket.bench.speed.timed_steps import load_target

    network, of_network = described_network(context, 1, machines.servers)
    networks = [
        dataclasses.replace(network, num_workers=count) for count in counts(machines.workers, "workers")
    ]
    graphs = {target: load_target(target) for target in targets}
    repeats, cores = timing.repeats, timing.cores
    with on_cores(cores), progress("simulating") as report:
        rows = bench_simulation(
            graphs,
            networks,
            policy,
            iterations=timing.iterations,
            steps=timing.steps,
            repeats=repeats,
            progress=report,
        )
    if json:
        settings = assumed(context, of_network)
        print_json({"cores": cores, "repeats": repeats, "rows": rows, "assumed": settings})
    else:
        print(heading([option_setting(context, "policy", policy), *of_network]))
        print_table(simulation_table(rows))
