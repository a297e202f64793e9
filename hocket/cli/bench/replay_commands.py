"""``hocket bench predict`` and ``hocket bench orders``: steps replayed on an emulated cluster."""

from __future__ import annotations

from pathlib import Path

import typer

from hocket.cli import options
from hocket.cli.answer_settings import defaults, heading, option_settings
from hocket.cli.bench.lab_options import LabRunOptions
from hocket.cli.bench.replay_options import (
    OrderedRows,
    OrderedSteps,
    OrderedTransfers,
    PredictedOutput,
    PredictedRows,
    PredictedSteps,
    PredictedTransports,
    ReplayScale,
)
from hocket.cli.list_options import counts, parts, ratios
from hocket.cli.network_options import window_bytes
from hocket.cli.option_groups import grouped
from hocket.cli.printing import note, print_json, print_table


@grouped
def predict(
    context: typer.Context,
    rows: PredictedRows,
    scale: ReplayScale,
    timing: PredictedSteps,
    transports: PredictedTransports,
    running: LabRunOptions,
    out: PredictedOutput,
) -> None:
    """Replay steps on an emulated cluster (as root) and say how far predictions are from it.

    Operations are slept through and transfers are real. Predictions know the step and what hocket network
    measure says of the lab's links, nothing else.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.replay.accuracy import accuracy_document, bench_predict
    from hocket.bench.replay.accuracy_request import STEPS, AccuracyRequest
    from hocket.bench.replay.accuracy_table import group_columns, row_columns
    from hocket.columns import terminal_table
    from hocket.document import write_whole
    from hocket.report.accuracy_page import render_accuracy

    steps_asked = STEPS if rows.step is None else parts(rows.step)
    request = AccuracyRequest(
        steps=steps_asked,
        policies=tuple(rows.policy.split(",")),
        modes=rows.modes(),
        workers=tuple(counts(rows.workers, "workers")),
        servers=tuple(counts(rows.servers, "servers")),
        rate_bps=scale.rate_bps(),
        transfer_s=scale.transfer_s(),
        rho=scale.rho,
        num_steps=timing.steps,
        skip=timing.skip,
        rounds=timing.rounds,
        seed=running.seed,
        timeout_s=running.timeout_s(),
        transports=transports.names(),
        window_bytes=window_bytes(transports.window),
    )
    plot = out.plot
    if plot is not None:
        options.check_beside_result(plot, *(Path(name) for name in steps_asked))
    accuracy = bench_predict(request)
    if plot is not None:
        write_whole(render_accuracy(accuracy).encode(), plot)
        note(f"{plot}: open it in a browser")
    if out.json:
        print_json({**accuracy_document(accuracy), "assumed": defaults(context)})
    else:
        print(heading(option_settings(context)))
        for columns in (row_columns(accuracy.rows), group_columns(accuracy.groups)):
            print_table(terminal_table(columns, spaced=True))


@grouped
def orders(
    context: typer.Context,
    rows: OrderedRows,
    machines: options.WorkersOptions,
    transfers: OrderedTransfers,
    timing: OrderedSteps,
    running: LabRunOptions,
    json: options.Json = False,
) -> None:
    """Replay synchronous steps under several orders, in turns, on an emulated cluster (as root).

    Throughput, 95th percentile and stragglers of each order beside the first one's, and what was predicted.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.replay.orders import OrdersRequest, bench_orders, orders_document
    from hocket.bench.replay.orders_table import orders_table

    given = {} if rows.step is None else {"steps": parts(rows.step)}
    request = OrdersRequest(
        **given,
        policies=tuple(rows.policy.split(",")),
        rhos=ratios(rows.rho),
        workers=machines.workers,
        servers=machines.servers,
        transport=transfers.transport,
        rate_bps=transfers.rate_bps(),
        transfer_s=transfers.transfer_s(),
        num_steps=timing.steps,
        skip=timing.skip,
        rounds=timing.rounds,
        seed=running.seed,
        timeout_s=running.timeout_s(),
    )
    measured = bench_orders(request)
    if json:
        print_json({**orders_document(measured), "assumed": defaults(context)})
    else:
        print(heading(option_settings(context)))
        print_table(orders_table(measured.rows))
