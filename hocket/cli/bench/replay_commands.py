"""``hocket bench predict`` and ``hocket bench orders``: steps replayed on an emulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from hocket.cli import options
from hocket.cli.answer_settings import defaults, heading, option_settings
from hocket.cli.list_options import counts, parts, ratios
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.network_options import window_bytes
from hocket.cli.panels import BENCHMARK, NETWORK, OUTPUT, PLANNING, WORKERS, option
from hocket.cli.printing import note, print_json, print_table
from hocket.errors import UnknownNameError

if TYPE_CHECKING:
    from hocket.bench.replay.accuracy_request import Mode, Transport

Replayed = Annotated[
    list[str] | None,
    option(
        "--step",
        panel=BENCHMARK,
        metavar="LIST",
        help="What to replay, as bench plan takes it, or chain; several by commas.",
    ),
]
Rate = Annotated[
    str, option(panel=NETWORK, metavar="RATE", help="Of the lab's links, each way: 1Gbit/s, or 1gbit.")
]
Transfer = Annotated[
    str,
    option(
        panel=BENCHMARK,
        rare=True,
        metavar="TIME",
        help="Sizes are scaled: pulling all parameters, alone, takes this long.",
    ),
]
Steps = Annotated[int, option(panel=BENCHMARK, rare=True, metavar="N", help="Steps of each row.")]
Skip = Annotated[
    int, option(panel=BENCHMARK, rare=True, metavar="N", help="Of them, left out at the beginning.")
]


def predict(
    context: typer.Context,
    step: Replayed = None,
    policy: Annotated[
        str,
        option(
            panel=PLANNING,
            metavar="LIST",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Orders to compare; those for all-reduce have no servers.",
        ),
    ] = "fifo,random,tic,tac,reverse",
    mode: Annotated[
        str, option(panel=PLANNING, metavar="LIST", callback=lowercase, help="async, sync or both.")
    ] = "async,sync",
    workers: Annotated[
        str, option(panel=WORKERS, metavar="LIST", help="Numbers of them: 4, 1,2,4 or 1-8.")
    ] = "1,2,4,8",
    servers: Annotated[str, option(panel=WORKERS, metavar="LIST", help="Numbers of them.")] = "1,2",
    rate: Rate = "1gbit",
    transfer: Transfer = "250ms",
    rho: Annotated[
        float,
        option(panel=BENCHMARK, metavar="LIST", help="Durations are scaled: transfers over operations."),
    ] = 1.0,
    steps: Steps = 14,
    skip: Skip = 3,
    rounds: Annotated[
        int,
        option(
            panel=BENCHMARK,
            rare=True,
            metavar="N",
            help="Async: how often each row is replayed, its workers beginning at other moments.",
        ),
    ] = 4,
    transport: Annotated[
        str, option(panel=NETWORK, rare=True, callback=lowercase, help="gloo, grpc or both.")
    ] = "gloo",
    window: Annotated[
        str | None,
        option(
            panel=NETWORK,
            rare=True,
            metavar="SIZE|off",
            help="HTTP/2's, which gRPC is given and predicted by: 28MB, or off.",
            show_default="28MB",
        ),
    ] = None,
    timeout: options.Timeout = "28800s",
    seed: options.Seed = 0,
    plot: Annotated[
        Path | None, option(panel=OUTPUT, metavar="FILE", help="Write a page of measured against predicted.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Replay steps on an emulated cluster (as root) and say how far predictions are from it.

    Operations are slept through and transfers are real. Predictions know the step and what hocket network
    measure says of the lab's links, nothing else.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.replay.accuracy import accuracy_document, bench_predict
    from hocket.bench.replay.accuracy_request import STEPS, AccuracyRequest
    from hocket.bench.replay.accuracy_table import group_table, row_table
    from hocket.document import write_whole
    from hocket.network import parse_bandwidth, parse_duration
    from hocket.report.accuracy_page import render_accuracy

    steps_asked = STEPS if step is None else parts(step)
    request = AccuracyRequest(
        steps=steps_asked,
        policies=tuple(policy.split(",")),
        modes=_modes(mode),
        workers=tuple(counts(workers, "workers")),
        servers=tuple(counts(servers, "servers")),
        rate_bps=parse_bandwidth(rate),
        transfer_s=parse_duration(transfer),
        rho=rho,
        num_steps=steps,
        skip=skip,
        rounds=rounds,
        seed=seed,
        timeout_s=parse_duration(timeout),
        transports=_transports(transport),
        window_bytes=window_bytes(window),
    )
    if plot is not None:
        options.check_beside_result(plot, *(Path(name) for name in steps_asked))
    accuracy = bench_predict(request)
    if plot is not None:
        write_whole(render_accuracy(accuracy).encode(), plot)
        note(f"{plot}: open it in a browser")
    if json:
        print_json({**accuracy_document(accuracy), "assumed": defaults(context)})
    else:
        print(heading(option_settings(context)))
        print_table(row_table(accuracy.rows))
        print_table(group_table(accuracy.groups))


def orders(
    context: typer.Context,
    step: Replayed = None,
    policy: Annotated[
        str,
        option(
            panel=PLANNING,
            metavar="LIST",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Orders to compare, the others with the first.",
        ),
    ] = "random,tac",
    rho: Annotated[
        str,
        option(
            panel=BENCHMARK,
            metavar="LIST",
            help="Durations are scaled: all workers' transfers over a worker's operations.",
        ),
    ] = "0.6,0.9,1.2",
    workers: options.Workers = options.WORKERS_ASSUMED,
    servers: options.Servers = 1,
    transport: Annotated[
        Literal["gloo", "grpc"],
        option(panel=NETWORK, rare=True, callback=lowercase, help="What tensors travel by."),
    ] = "gloo",
    rate: Rate = "1gbit",
    transfer: Transfer = "100ms",
    steps: Steps = 12,
    skip: Skip = 2,
    rounds: Annotated[
        int, option(panel=BENCHMARK, rare=True, metavar="N", help="How often each row is replayed, in turns.")
    ] = 3,
    timeout: options.Timeout = "28800s",
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Replay synchronous steps under several orders, in turns, on an emulated cluster (as root).

    Throughput, 95th percentile and stragglers of each order beside the first one's, and what was predicted.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.replay.orders import OrdersRequest, bench_orders, orders_document
    from hocket.bench.replay.orders_table import orders_table
    from hocket.network import parse_bandwidth, parse_duration

    given = {} if step is None else {"steps": parts(step)}
    request = OrdersRequest(
        **given,
        policies=tuple(policy.split(",")),
        rhos=ratios(rho),
        workers=workers,
        servers=servers,
        transport=transport,
        rate_bps=parse_bandwidth(rate),
        transfer_s=parse_duration(transfer),
        num_steps=steps,
        skip=skip,
        rounds=rounds,
        seed=seed,
        timeout_s=parse_duration(timeout),
    )
    measured = bench_orders(request)
    if json:
        print_json({**orders_document(measured), "assumed": defaults(context)})
    else:
        print(heading(option_settings(context)))
        print_table(orders_table(measured.rows))


def _modes(text: str) -> tuple[Mode, ...]:
    from hocket.bench.replay.accuracy_request import MODES

    return cast("tuple[Mode, ...]", _names("mode", text, MODES))


def _transports(text: str) -> tuple[Transport, ...]:
    from hocket.bench.replay.accuracy_request import TRANSPORTS

    return cast("tuple[Transport, ...]", _names("transport", text, TRANSPORTS))


def _names(what: str, text: str, valid: Sequence[str]) -> tuple[str, ...]:
    for part in text.split(","):
        if part not in valid:
            raise UnknownNameError(what, part, list(valid))
    return tuple(text.split(","))
