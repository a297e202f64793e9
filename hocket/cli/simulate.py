"""``hocket simulate``: what a policy or a plan makes of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.output import print_json, print_table, progress
from hocket.errors import HocketError


def simulate(
    step: options.Step,
    policy: Annotated[str | None, typer.Option(help="Plan by this policy first.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A hocket.plan/1 file instead of a policy.")] = None,
    architecture: options.Architecture = "ps",
    workers: options.Workers = 1,
    servers: options.Servers = 1,
    bandwidth: options.Bandwidth = "10Gbit/s",
    latency: options.Latency = "0s",
    iterations: Annotated[int, typer.Option(min=1, help="Steps to simulate.")] = 20,
    seed: options.Seed = 0,
    json: options.Json = False,
    timeline: Annotated[Path | None, typer.Option(help="Write a trace of one step for Perfetto.")] = None,
) -> None:
    """Simulate training steps under one policy: how long they take and how far from the limit that is."""
    from hocket.graph import load_plan, load_step
    from hocket.graph.document import check_writable, write_json
    from hocket.graph.validate import check_plan
    from hocket.interop import timeline_document
    from hocket.planner import plan as make_plan
    from hocket.report import terminal_table
    from hocket.sim import simulate as run

    if (policy is None) == (plan is None):
        raise HocketError("a simulation takes either --policy NAME or --plan FILE; give one of them")
    network = options.network_of(workers, servers, bandwidth, latency)
    if timeline is not None:
        check_writable(timeline, step, *([plan] if plan is not None else []))
    graph = load_step(step)
    if plan is not None:
        schedule = load_plan(plan)
        check_plan(schedule, graph, str(plan))
    else:
        assert policy is not None
        schedule = make_plan(graph, network, policy, seed=seed)
    with progress("simulating") as report:
        result = run(
            graph,
            schedule,
            network,
            iterations=iterations,
            seed=seed,
            random_order=policy == "random",
            timeline=timeline is not None,
            progress=report,
        )
    if timeline is not None:
        assert result.timeline is not None
        write_json(timeline_document(result.timeline, result.row), timeline)
    if json:
        print_json(result.row)
    else:
        print_table(terminal_table([result.row]))
