"""``hocket tune``: every policy on one's own step and network, ranked, and the best plan on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.commands import OUTPUT, option
from hocket.cli.output import note, print_json, print_table, progress
from hocket.cli.settings import (
    SYNCHRONOUS,
    applying,
    architecture_setting,
    assumed,
    described_network,
    heading,
    step_settings,
)


def tune(
    context: typer.Context,
    step: options.Step,
    output: Annotated[
        Path | None,
        option(
            "-o",
            "--output",
            panel=OUTPUT,
            metavar="FILE",
            help="The best plan's file.",
            show_default="STEP.tuned.plan.json, here",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        option("--report", panel=OUTPUT, metavar="FILE", help="Write a page that shows the ranking and why."),
    ] = None,
    architecture: options.Architecture = None,
    barrier: options.Barrier = None,
    workers: options.Workers = 4,
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
    iterations: options.Iterations = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Try every policy, search for a better plan, and write the best: never slower than any of them."""
    from hocket.document import write_whole
    from hocket.graph import load_step, save_plan
    from hocket.network import parse_duration
    from hocket.report import Entry, render, terminal_table
    from hocket.tuner import tune as run

    exchange = architecture_setting(context, None)
    options.check_servers(servers, exchange.value)
    network, of_network = described_network(context, workers, servers)
    written = _named_after(step) if output is None else output
    inputs = options.inputs(step, network_file)
    options.check_beside_result(written, *inputs)
    if report is not None:
        options.check_beside_result(report, *inputs)
        options.check_apart(report, written, "the page and the plan")
    graph = load_step(step)
    with progress("tuning") as show:
        found = run(
            graph,
            network,
            architecture=exchange.value,
            barrier=barrier,
            iterations=iterations,
            seed=seed,
            fusion_bytes=options.fusion_bytes_of(fusion),
            budget_s=parse_duration(budget),
            timelines=report is not None,
            progress=lambda what, done, total: show(done, total, what),
        )
    save_plan(found.plan, written)
    if report is not None:
        entries = [Entry(row, found.timelines.get(row.policy)) for row in found.ranked]
        write_whole(render(entries, title=f"{graph.model}: every policy, ranked").encode(), report)
    best = found.best
    settings = [exchange, SYNCHRONOUS, *step_settings(context, network), *of_network]
    if json:
        print_json(
            {
                "ranked": [msgspec.to_builtins(row) for row in found.ranked],
                "best": best.policy,
                "bound_s": best.bound_s,
                "plan": str(written),
                "evaluations": found.evaluations,
                "wall_s": found.wall_s,
                "assumed": assumed(context, settings, exchange.value),
            }
        )
    else:
        print(heading(applying(settings, exchange.value)))
        print_table(terminal_table(found.ranked))
    over = f"{best.iteration_s / best.bound_s - 1:.2%}" if best.bound_s > 0 else "0%"
    note(
        f"{written}: {best.policy}, {over} over its proven bound; the search tried {found.evaluations} plans"
    )
    if report is not None:
        note(f"{report}: open it in a browser")


def _named_after(step: Path) -> Path:
    """The plan's file where none is named: after STEP, without what says that it is one, in this folder."""
    name = "stdin" if str(step) == "-" else step.name
    for suffix in (".zst", ".gz", ".json", ".step"):
        name = name.removesuffix(suffix)
    return Path(f"{name or 'step'}.tuned.plan.json")
