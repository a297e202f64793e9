"""``hocket demo``: the whole flow on a real model, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.output import note, print_table, progress
from hocket.cli.profile import measured_step
from hocket.errors import HocketError


def demo(
    model: Annotated[str, typer.Option(help="A model of the zoo.")] = "inception_v1",
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in a step.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure.")] = 10,
    workers: options.Workers = 4,
    servers: options.Servers = 1,
    bandwidth: options.Bandwidth = "1Gbit/s",
    latency: options.Latency = "50us",
    iterations: Annotated[int, typer.Option(min=1, help="Steps to simulate for each policy.")] = 200,
    seed: options.Seed = 0,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to fill.")] = Path("hocket-demo"),
) -> None:
    """Profile a real model here, simulate every policy, and write the report: the first look at Hocket."""
    from hocket.graph import save_plan, save_step
    from hocket.graph.document import write_json, write_whole
    from hocket.interop import timeline_document
    from hocket.network import assign_servers
    from hocket.planner import plan, policies_of
    from hocket.planner.registry import POLICIES
    from hocket.profiler import load, profile_step
    from hocket.report import Entry, render, terminal_table
    from hocket.sim import simulate

    network = options.network_of(workers, servers, bandwidth, latency)
    setup = load(model, batch_size)
    assign_servers([0] * len(list(setup.model.parameters())), servers)  # refuse before measuring
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HocketError(f"{output}: cannot be made a folder: {error.strerror}") from None
    with progress(f"profiling {model}, batch size {batch_size}") as report:
        measured = profile_step(
            *setup[:4], steps=steps, name=setup.name, batch_size=batch_size, progress=report
        )
    graph = measured.graph
    save_step(graph, output / "step.json")
    note(measured_step(measured))

    entries = []
    for policy in policies_of("ps"):
        schedule = plan(graph, network, policy, seed=seed)
        save_plan(schedule, output / f"{policy}.plan.json")
        with progress(f"simulating {policy}") as report:
            result = simulate(
                graph,
                schedule,
                network,
                iterations=iterations,
                seed=seed,
                random_order=POLICIES[policy].drawn_anew,
                timeline=True,
                progress=report,
            )
        assert result.timeline is not None
        write_json(timeline_document(result.timeline, result.row), output / f"{policy}.timeline.json")
        entries.append(Entry(result.row, result.timeline))
    write_whole(render(entries).encode(), output / "report.html")
    print(f"{model} on this machine; workers: {workers}, servers: {servers}, interfaces of {bandwidth}")
    print_table(terminal_table([entry.row for entry in entries]))
    print(f"The picture of why: {(output / 'report.html').resolve()}")
