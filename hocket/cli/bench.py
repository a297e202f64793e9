"""``hocket bench``: training, planners and the simulator by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from hocket.cli import options
from hocket.cli.lab import parse_rate
from hocket.cli.lists import counts
from hocket.cli.output import note, print_json, print_table, progress
from hocket.errors import HocketError, UnknownNameError

if TYPE_CHECKING:
    from hocket.bench.accuracy_request import Mode, Transport

app = typer.Typer(help="Time training, planners and the simulator.", no_args_is_help=True)

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="STEP|MODEL|NUMBER...", help="hocket.step/1 files, zoo models, or numbers of operations."
    ),
]
Cores = Annotated[int, typer.Option(help="To run on; planners and the simulator are one thread each.")]
Timeout = Annotated[str, typer.Option(help="For how long all of it may go on: 3600s.")]
Replayed = Annotated[
    list[str] | None,
    typer.Option("--step", help="What to replay, as bench plan takes it, or chain; several by commas."),
]
Rate = Annotated[str, typer.Option(help="Of the lab's links, each way: 1Gbit/s, or 1gbit.")]
Transfer = Annotated[
    str, typer.Option(help="Sizes are scaled: pulling all parameters, alone, takes this long.")
]
Steps = Annotated[int, typer.Option(help="Steps of each row.")]
Skip = Annotated[int, typer.Option(help="Of them, left out at the beginning.")]


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
    timeout: Timeout = "28800s",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Time DDP's bucket sizes and hocket in turn, on one model and network, and what bounds them both.

    Where rho is less than 1 that bound is a reference, slightly above the true limit.

    The cluster is emulated (as root), or that of the processes that torchrun started.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.models import NAMES
    from hocket.bench.request import Request
    from hocket.bench.table import cell_heading, cell_table, summary_line
    from hocket.bench.train import bench_train, benchmark_document
    from hocket.network import parse_duration

    request = Request(
        models=NAMES if model is None else _parts(model),
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


def _parts(texts: Sequence[str]) -> tuple[str, ...]:
    """What an option names that is given several times, or several by commas."""
    return tuple(name for text in texts for name in text.split(","))


def _ratios(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise HocketError(f"rho '{text}' is not a list of numbers; give e.g. 2,1,0.5") from None


@app.command()
def plan(
    targets: Targets,
    policies: Annotated[str | None, typer.Option(help="Some of them: tic,tac,caramel; else all.")] = None,
    workers: options.Workers = 8,
    servers: options.Servers = 1,
    network_file: options.NetworkPath = None,
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    repeats: Annotated[int, typer.Option(help="How often each plan is made, in turns.")] = 7,
    cores: Cores = 1,
    json: options.Json = False,
) -> None:
    """Time planners: seconds a plan, and what that is for each operation of the step."""
    from hocket.bench.graphs import load_target
    from hocket.bench.speed import bench_plan, on_cores
    from hocket.bench.speed_table import plan_table
    from hocket.planner import POLICIES

    network = options.network_of(workers, servers, bandwidth, latency, file=network_file)
    graphs = {target: load_target(target) for target in targets}
    names = list(POLICIES) if policies is None else policies.split(",")
    with on_cores(cores), progress("planning") as report:
        rows = bench_plan(graphs, network, names, repeats=repeats, progress=report)
    if json:
        print_json({"cores": cores, "repeats": repeats, "workers": workers, "servers": servers, "rows": rows})
    else:
        print_table(plan_table(rows))


@app.command()
def sim(
    targets: Targets,
    policy: Annotated[str, typer.Option(help="Plan by this policy.")] = "tac",
    workers: Annotated[str, typer.Option(help="Numbers of them: 4, 1,2,4 or 1-16.")] = "1,4,16",
    servers: options.Servers = 1,
    network_file: options.NetworkPath = None,
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    iterations: Annotated[int, typer.Option(min=1, help="Steps that the simulator simulates.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each worker that are predicted.")] = 100,
    repeats: Annotated[int, typer.Option(help="How often each is timed, in turns.")] = 5,
    cores: Cores = 1,
    json: options.Json = False,
) -> None:
    """Time the simulator and the predictor: events a second, seconds a step, compiling apart."""
    from hocket.bench.graphs import load_target
    from hocket.bench.speed import bench_simulation, on_cores
    from hocket.bench.speed_table import simulation_table

    networks = [
        options.network_of(count, servers, bandwidth, latency, file=network_file)
        for count in counts(workers, "workers")
    ]
    graphs = {target: load_target(target) for target in targets}
    with on_cores(cores), progress("simulating") as report:
        rows = bench_simulation(
            graphs, networks, policy, iterations=iterations, steps=steps, repeats=repeats, progress=report
        )
    if json:
        print_json({"cores": cores, "repeats": repeats, "rows": rows})
    else:
        print_table(simulation_table(rows))


@app.command()
def predict(
    step: Replayed = None,
    policy: Annotated[
        str, typer.Option(help="Orders to compare; those for all-reduce have no servers.")
    ] = "fifo,random,tic,tac,reverse",
    mode: Annotated[str, typer.Option(help="async, sync or both.")] = "async,sync",
    workers: Annotated[str, typer.Option(help="Numbers of them: 4, 1,2,4 or 1-8.")] = "1,2,4,8",
    servers: Annotated[str, typer.Option(help="Numbers of them.")] = "1,2",
    rate: Rate = "1gbit",
    transfer: Transfer = "250ms",
    rho: Annotated[float, typer.Option(help="Durations are scaled: transfers over operations.")] = 1.0,
    steps: Steps = 14,
    skip: Skip = 3,
    transport: Annotated[str, typer.Option(help="gloo, grpc or both.")] = "gloo",
    window: Annotated[
        str | None,
        typer.Option(help="HTTP/2's, which gRPC is given and predicted by: 28MB, or off; else 28MB."),
    ] = None,
    timeout: Timeout = "28800s",
    seed: options.Seed = 0,
    plot: Annotated[Path | None, typer.Option(help="Write a page of measured against predicted.")] = None,
    json: options.Json = False,
) -> None:
    """Replay steps on an emulated cluster (as root) and say how far predictions are from it.

    Operations are slept through and transfers are real. Predictions know the step and what hocket network
    measure says of the lab's links, nothing else.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.accuracy import accuracy_document, bench_predict
    from hocket.bench.accuracy_request import STEPS, Request
    from hocket.bench.accuracy_table import group_table, row_table
    from hocket.document import check_writable, write_whole
    from hocket.network import parse_duration
    from hocket.report.accuracy_page import render_accuracy

    steps_asked = STEPS if step is None else _parts(step)
    request = Request(
        steps=steps_asked,
        policies=tuple(policy.split(",")),
        modes=_modes(mode),
        workers=tuple(counts(workers, "workers")),
        servers=tuple(counts(servers, "servers")),
        rate_bps=parse_rate(rate),
        transfer_s=parse_duration(transfer),
        rho=rho,
        num_steps=steps,
        skip=skip,
        seed=seed,
        timeout_s=parse_duration(timeout),
        transports=_transports(transport),
        window_bytes=options.window_bytes(window),
    )
    if plot is not None:
        check_writable(plot, *(Path(name) for name in steps_asked))
    accuracy = bench_predict(request)
    if plot is not None:
        write_whole(render_accuracy(accuracy).encode(), plot)
        note(f"{plot}: open it in a browser")
    if json:
        print_json(accuracy_document(accuracy))
    else:
        print_table(row_table(accuracy.rows))
        print_table(group_table(accuracy.groups))


@app.command()
def orders(
    step: Replayed = None,
    policy: Annotated[str, typer.Option(help="Orders to compare, the others with the first.")] = "random,tac",
    rho: Annotated[
        str, typer.Option(help="Durations are scaled: all workers' transfers over a worker's operations.")
    ] = "0.6,0.9,1.2",
    workers: options.Workers = 4,
    servers: options.Servers = 1,
    transport: Annotated[Literal["gloo", "grpc"], typer.Option(help="What tensors travel by.")] = "gloo",
    rate: Rate = "1gbit",
    transfer: Transfer = "100ms",
    steps: Steps = 12,
    skip: Skip = 2,
    rounds: Annotated[int, typer.Option(help="How often each row is replayed, in turns.")] = 3,
    timeout: Timeout = "28800s",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Replay synchronous steps under several orders, in turns, on an emulated cluster (as root).

    Throughput, 95th percentile and stragglers of each order beside the first one's, and what was predicted.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.orders import OrdersRequest, bench_orders, orders_document
    from hocket.bench.orders_table import orders_table
    from hocket.network import parse_duration

    given = {} if step is None else {"steps": _parts(step)}
    request = OrdersRequest(
        **given,
        policies=tuple(policy.split(",")),
        rhos=_ratios(rho),
        workers=workers,
        servers=servers,
        transport=transport,
        rate_bps=parse_rate(rate),
        transfer_s=parse_duration(transfer),
        num_steps=steps,
        skip=skip,
        rounds=rounds,
        seed=seed,
        timeout_s=parse_duration(timeout),
    )
    measured = bench_orders(request)
    if json:
        print_json(orders_document(measured))
    else:
        print_table(orders_table(measured.rows))


def _modes(text: str) -> tuple[Mode, ...]:
    from hocket.bench.accuracy_request import MODES

    return cast("tuple[Mode, ...]", _names("mode", text, MODES))


def _transports(text: str) -> tuple[Transport, ...]:
    from hocket.bench.accuracy_request import TRANSPORTS

    return cast("tuple[Transport, ...]", _names("transport", text, TRANSPORTS))


def _names(what: str, text: str, valid: Sequence[str]) -> tuple[str, ...]:
    for part in text.split(","):
        if part not in valid:
            raise UnknownNameError(what, part, list(valid))
    return tuple(text.split(","))
