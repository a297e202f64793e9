"""``hocket plan``: order the transfers of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.commands import OUTPUT, option
from hocket.cli.output import note, print_json, progress
from hocket.cli.settings import (
    SYNCHRONOUS,
    applying,
    architecture_setting,
    described_network,
    heading,
    option_setting,
    step_settings,
)


def plan(
    context: typer.Context,
    step: options.Step,
    policy: options.Policy,
    output: Annotated[
        Path | None,
        option(
            "-o", "--output", panel=OUTPUT, metavar="FILE", help="Where to write.", show_default="printed"
        ),
    ] = None,
    architecture: options.Architecture = None,
    barrier: options.Barrier = None,
    workers: options.Workers = 1,
    servers: options.Servers = 1,
    network_file: options.NetworkPath = None,
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    parse_alpha: options.ParseAlpha = None,
    parse_beta: options.ParseBeta = None,
    pattern: options.PatternName = None,
    window: options.Window = None,
    fusion: options.Fusion = "0B",
    budget: options.Budget = "10s",
    seed: options.Seed = 0,
) -> None:
    """Plan what is transferred in which order, with what the simulator expects of it."""
    from hocket.document import check_writable
    from hocket.graph import load_step, save_plan
    from hocket.graph.io import plan_document
    from hocket.network import parse_duration
    from hocket.sim import simulate
    from hocket.tuner import make_plan
    from hocket.tuner.choose import architecture_of

    exchange = architecture_setting(context, policy)
    options.check_servers(servers, architecture_of(policy, exchange.value))
    network, of_network = described_network(context, workers, servers)
    if output is not None:
        check_writable(output, *options.inputs(step, network_file))
    graph = load_step(step)
    with progress(f"planning by {policy}") as report:
        planned = make_plan(
            graph,
            network,
            policy,
            architecture=exchange.value,
            barrier=barrier,
            seed=seed,
            fusion_bytes=options.fusion_bytes_of(fusion),
            budget_s=parse_duration(budget),
            progress=lambda spent_s, _: report(spent_s, parse_duration(budget)),
        )
    with progress("simulating") as report:
        row = planned.judged(simulate(graph, planned.plan, network, seed=seed, progress=report).row)
    made = msgspec.structs.replace(planned.plan, predicted=row.predicted())
    settings = [exchange, SYNCHRONOUS, option_setting(context, "policy", policy)]
    settings += [*step_settings(context, network), *of_network]
    asked = heading(applying(settings, made.architecture))
    if output is None:
        print_json(plan_document(made))
        note(asked)
        return
    save_plan(made, output)
    transfers = (
        f"{len(made.pulls)} pulls, {len(made.pushes)} pushes"
        if made.architecture == "ps"
        else f"{len(made.reductions)} reductions"
    )
    proof = f", {row.status}" if row.status else ""
    note(f"{output}: {transfers}, step {row.iteration_s:.6g} s, bound {row.bound_s:.6g} s{proof}")
    note(asked)
