"""``hocket bench``: real training by the clock, beside what it is to be compared with."""

from __future__ import annotations

from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.lab import parse_rate
from hocket.cli.output import print_json, print_table
from hocket.errors import HocketError

app = typer.Typer(help="Time real training beside what it is to be compared with.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Keep ``train`` a command of its own: typer calls a group's only command without its name."""


@app.command()
def train(
    nodes: Annotated[
        int | None, typer.Option(help="Of the emulated cluster; else 2. Under torchrun: its own.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Of its links, each way: 1Gbit/s, or 1gbit; else 250Mbit/s.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="cnn, vgg11, gpt, resnet18 or FILE.py:FACTORY, several by commas; else all four."),
    ] = None,
    rho: Annotated[str, typer.Option(help="N / C, the network busy, to choose batch sizes for.")] = "2,1,0.5",
    batch_size: Annotated[int | None, typer.Option(help="One batch size instead of --rho.")] = None,
    plan: Annotated[str, typer.Option(help="What hocket trains by: auto, or a policy.")] = "auto",
    compile_: Annotated[bool, typer.Option("--compile", help="Compiled models too.")] = False,
    steps: Annotated[int, typer.Option(help="Timed steps of a block, after three that are not.")] = 8,
    blocks: Annotated[int, typer.Option(help="Rounds: blocks of each variant.")] = 5,
    threads: Annotated[int, typer.Option(help="Intra-op threads of each rank.")] = 1,
    timeout: Annotated[str, typer.Option(help="For how long all of it may go on: 3600s.")] = "28800s",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Time DDP's bucket sizes and hocket in turn, on one model and network, and what bounds them both.

    Where rho is less than 1 that bound is a reference, slightly above the true limit.

    The cluster is emulated (as root), or that of the processes that torchrun started.
    """
    from hocket.bench.models import NAMES
    from hocket.bench.request import Request
    from hocket.bench.table import cell_heading, cell_table, summary_line
    from hocket.bench.train import bench_train, benchmark_document
    from hocket.network import parse_duration

    request = Request(
        models=NAMES if model is None else tuple(name for part in model for name in part.split(",")),
        rhos=_ratios(rho),
        batch_size=batch_size,
        steps=steps,
        blocks=blocks,
        seed=seed,
        threads=threads,
        plan=plan,
        compile=compile_,
        timeout_s=parse_duration(timeout),
    )
    benchmark = bench_train(request, nodes=nodes, rate_bps=None if rate is None else parse_rate(rate))
    if benchmark is None:
        return
    if json:
        print_json(benchmark_document(benchmark))
        return
    for cell in benchmark.cells:
        print(cell_heading(cell))
        print_table(cell_table(cell))
    print(summary_line(benchmark.cells, benchmark.summary))


def _ratios(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise HocketError(f"rho '{text}' is not a list of numbers; give e.g. 2,1,0.5") from None
