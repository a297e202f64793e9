"""``hocket demo``: the whole flow on a real model, measured here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import assumptions, step_settings
from hocket.cli.commands.profile_command import measured_step
from hocket.cli.given_options import other_options
from hocket.cli.name_options import complete_model, lowercase
from hocket.cli.network_options import LinkOptions
from hocket.cli.network_settings import described_network
from hocket.cli.option_groups import grouped
from hocket.cli.panels import NETWORK, OUTPUT, PROFILE, option
from hocket.cli.planning_options import Budget
from hocket.cli.printing import note, progress, warn
from hocket.cli.screen import MORE, show
from hocket.cli.step_screen import step_sheet
from hocket.cli.tuning_progress import tuning_progress
from hocket.errors import HocketError
from hocket.text import scaled_text

ARCHITECTURES: tuple[Literal["allreduce", "ps"], ...] = ("allreduce", "ps")
_EXCHANGES = {"allreduce": "All-reduce", "ps": "Parameter servers"}


@dataclass(frozen=True, kw_only=True)
class DemoProfile:
    """Options for the step that ``hocket demo`` measures."""

    model: Annotated[
        str,
        option(
            "--model",
            panel=PROFILE,
            metavar="NAME",
            help="A model of the zoo (hocket models).",
            callback=lowercase,
            autocompletion=complete_model,
        ),
    ] = "inception_v1"
    batch_size: Annotated[
        int, option("--batch-size", panel=PROFILE, metavar="N", min=1, help="Examples in a step.")
    ] = 8
    steps: Annotated[int, option("--steps", panel=PROFILE, metavar="N", min=1, help="Steps to measure.")] = 10


@dataclass(frozen=True, kw_only=True)
class DemoLinks(LinkOptions):
    """Options for a slow network, on which an order is worth something."""

    bandwidth: Annotated[
        str | None,
        option(
            "--bandwidth",
            panel=NETWORK,
            metavar="RATE",
            help="Of every interface, each way.",
            show_default="1Gbit/s",
        ),
    ] = None
    latency: Annotated[
        str | None,
        option(
            "--latency",
            panel=NETWORK,
            metavar="TIME",
            help="Startup of each transfer.",
            show_default="50us",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DemoSimulation(options.SimulationOptions):
    """Options for simulated steps, of more than the other commands simulate."""

    iterations: options.Iterations = 100


@dataclass(frozen=True, kw_only=True)
class DemoOutput:
    """Options for what ``hocket demo`` writes and prints."""

    output: Annotated[
        Path, option("-o", "--output", panel=OUTPUT, metavar="FOLDER", help="The folder to fill.")
    ] = Path("hocket-demo")
    wide: options.Wide = False


@grouped
def demo(
    context: typer.Context,
    profile: DemoProfile,
    machines: options.WorkersOptions,
    net: DemoLinks,
    simulation: DemoSimulation,
    out: DemoOutput,
    budget: Budget = "5s",
) -> None:
    """Profile a real model here, rank every policy, search for a better plan, and write the report."""
    from hocket.document import write_json, write_whole
    from hocket.graph import save_plan, save_step
    from hocket.interop import timeline_document
    from hocket.network import assign_servers, parse_duration
    from hocket.origin import origin
    from hocket.profiler import load, make_step, profile_step
    from hocket.report.result_files import Entry
    from hocket.report.step_page import render
    from hocket.report.uncertain_gain import uncertain_gain
    from hocket.report.verdicts import on_workers, ranking_verdict
    from hocket.tuner import tune

    model, batch_size, output = profile.model, profile.batch_size, out.output
    network, of_network = described_network(
        context, machines.workers, machines.servers, bandwidth="1Gbit/s", latency="50us"
    )
    setup = load(model, batch_size)
    assign_servers([0] * len(list(setup.model.parameters())), machines.servers)  # refuse before measuring
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HocketError(f"{output}: cannot be made a folder: {error.strerror}") from None
    page = output / "report.html"
    options.check_written(page)
    with progress(f"profiling {model}, batch size {batch_size}") as report:
        step = make_step(*setup[:4])
        measured = profile_step(
            step, steps=profile.steps, name=setup.name, batch_size=batch_size, progress=report
        )
    graph = measured.graph
    save_step(graph, output / "step.json")
    made, entries, answers, sheets = origin(network), [], [], []
    for architecture in ARCHITECTURES:
        with tuning_progress(network.num_workers, simulation.iterations) as tell:
            found = tune(
                graph,
                network,
                architecture=architecture,
                iterations=simulation.iterations,
                seed=simulation.seed,
                budget_s=parse_duration(budget),
                timelines=True,
                progress=tell,
            )
        for row in found.ranked:
            save_plan(found.plans[row.policy], output / f"{architecture}.{row.policy}.plan.json")
            shown = found.timelines.get(row.policy)
            entries.append(Entry(row, shown, made))
            if shown is not None:
                name = f"{architecture}.{row.policy}.timeline.json"
                write_json(
                    timeline_document(shown, row) | {"origin": msgspec.to_builtins(made)}, output / name
                )
        where = on_workers(found.best, scaled_text(network.bandwidth_bps, "bit/s"))
        told = ranking_verdict(found.ranked, where, found.alike_s, found.alike_bound_s)
        answers.append(f"{model} by {_EXCHANGES[architecture].lower()}, {told}")
        answers += uncertain_gain(graph, found.ranked, found.alike_s)
        sheets.append(
            step_sheet(
                found.ranked,
                of=found.best.policy,
                wide=out.wide,
                title=_EXCHANGES[architecture],
                alike_s=found.alike_s,
            )
        )
    write_whole(render(entries).encode(), page)
    asked = [*step_settings(context, network), *of_network]
    asked += other_options(context, asked)
    show(
        answers,
        assumptions=f"Simulated from this machine's profile; {assumptions(graph, asked)}",
        sheets=sheets,
        remarks=[f"Why, in pictures: {page}", *([] if out.wide else [MORE])],
        following="hocket profile train.py -o step.json  # train.py: your script as it is under DDP",
    )
    note(f"the profile, {output / 'step.json'}: {measured_step(measured)}")
    if graph.caveat:
        warn(f"{output / 'step.json'}: {graph.caveat}")
