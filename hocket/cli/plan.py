"""``hocket plan``: order the transfers of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.output import note, print_json, progress


def plan(
    step: options.Step,
    policy: Annotated[str, typer.Option(help="fifo, random, reverse, layerwise, tic or tac.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; else printed.")
    ] = None,
    architecture: options.Architecture = "ps",
    workers: options.Workers = 1,
    servers: options.Servers = 1,
    bandwidth: options.Bandwidth = "10Gbit/s",
    latency: options.Latency = "0s",
    seed: options.Seed = 0,
) -> None:
    """Plan what is transferred in which order, with what the simulator expects of it."""
    from hocket.graph import Predicted, load_step, save_plan
    from hocket.graph.document import check_writable
    from hocket.graph.io import plan_document
    from hocket.planner import plan as make_plan
    from hocket.sim import simulate

    network = options.network_of(workers, servers, bandwidth, latency)
    if output is not None:
        check_writable(output, step)
    graph = load_step(step)
    with progress("planning and simulating") as report:
        made = make_plan(graph, network, policy, seed=seed)
        row = simulate(graph, made, network, seed=seed, progress=report).row
    predicted = Predicted(**{name: getattr(row, name) for name in Predicted.__struct_fields__})
    made = msgspec.structs.replace(made, predicted=predicted)
    if output is None:
        print_json(plan_document(made))
    else:
        save_plan(made, output)
        note(f"{output}: {len(made.pulls)} pulls, {len(made.pushes)} pushes, step {row.iteration_s:.6g} s")
