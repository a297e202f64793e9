"""``hocket plan``: order the transfers of a step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import (
    SYNCHRONOUS,
    applying,
    architecture_setting,
    assumptions,
    described_network,
    option_setting,
    step_settings,
)
from hocket.cli.given import other_options
from hocket.cli.panels import OUTPUT, option
from hocket.cli.printing import note, print_json, progress
from hocket.cli.screen import as_sentence, show
from hocket.cli.step_screen import beside_usual, remarks_on, step_sheet, train_command
from hocket.text import counted, scaled_text

if TYPE_CHECKING:
    from hocket.graph import Plan


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
    workers: options.WorkersOrUsual = None,
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
    wide: options.Wide = False,
) -> None:
    """Plan what is transferred in which order, with what the simulator expects of it."""
    from hocket.document import check_writable, is_standard_output
    from hocket.graph import load_step, save_plan
    from hocket.graph.io import plan_document
    from hocket.network import parse_duration
    from hocket.report.verdicts import on_workers, result_verdict, usual_row
    from hocket.sim import simulate
    from hocket.tuner import make_plan
    from hocket.tuner.policies import architecture_of

    exchange = architecture_setting(context, policy)
    options.check_servers(servers, architecture_of(policy, exchange.value))
    num_workers = options.num_workers(workers, exchange.value)
    network, of_network = described_network(context, num_workers, servers)
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
    settings += other_options(context, settings)
    rows = beside_usual(context, graph, network, row, iterations=20)
    answer = result_verdict(
        row, usual_row(rows), on_workers(row, scaled_text(network.bandwidth_bps, "bit/s"))
    )
    asked = assumptions(graph, applying(settings, made.architecture))
    if output is None or is_standard_output(output):
        if output is None:
            print_json(plan_document(made))
        else:
            save_plan(made, output)
        note(as_sentence(answer))
        note(asked)
        return
    save_plan(made, output)
    show(
        [answer],
        assumptions=asked,
        sheets=[step_sheet(rows, of=row.policy, wide=wide)],
        remarks=remarks_on(graph, wide=wide),
        following=train_command(context, graph, made, network, str(output)),
    )
    note(f"{output}: {_transfers(made)}")


def _transfers(made: Plan) -> str:
    if made.architecture == "ps":
        return f"{counted(len(made.pulls), 'pull')}, {counted(len(made.pushes), 'push', 'pushes')}"
    return counted(len(made.reductions), "reduction")
