"""``hocket predict``: what any number of workers and servers will reach, before anybody rents them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import (
    AnswerSetting,
    applying,
    architecture_setting,
    as_reduced,
    assumed,
    assumptions,
    described_network,
    is_given,
    option_setting,
    plan_setting,
    window_setting,
)
from hocket.cli.given import given, other_options
from hocket.cli.list_options import bandwidths, counts, speeds
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.panels import NETWORK, OUTPUT, PLANNING, SIMULATION, WORKERS, option
from hocket.cli.printing import note, print_json, progress
from hocket.cli.screen import MORE, NETWORK_OPTIONS, Sheet, command_line, show
from hocket.errors import HocketError
from hocket.text import capitalized, scaled_text

if TYPE_CHECKING:
    from hocket.graph import Plan
    from hocket.predictor import Prediction
    from hocket.report.prediction_measured import MeasuredThroughput

_MOST_CONFIGURATIONS = 10_000
_SKIPPED = 50

_NUMBERS = {"panel": WORKERS, "metavar": "LIST"}


def predict(
    context: typer.Context,
    step: options.Step,
    workers: Annotated[
        str,
        option(
            "--workers",
            help="A row for each number of them, since they are the question: 4, 1,2,4 or 1-16.",
            **_NUMBERS,
        ),
    ] = "1-16",
    servers: Annotated[
        str,
        option(
            "--servers", help="Numbers of parameter servers: 1,2,4; a row for each combination.", **_NUMBERS
        ),
    ] = "1",
    mode: Annotated[
        Literal["async", "sync"] | None,
        option(
            "--mode",
            panel=PLANNING,
            help="Whether workers wait for each other; async has servers.",
            show_default="sync with all-reduce, async with servers",
        ),
    ] = None,
    architecture: options.Architecture = None,
    barrier: options.Barrier = None,
    policy: Annotated[
        str | None,
        option(
            "--policy",
            panel=PLANNING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Plan by this policy; a wrong name lists all.",
            show_default="ddp, with servers fifo",
        ),
    ] = None,
    plan: options.PlanFile = None,
    updates: Annotated[
        Literal["arrival", "commit"],
        option(
            "--updates",
            panel=PLANNING,
            rare=True,
            help="Servers begin them as gradients arrive, or when a worker commits its step.",
        ),
    ] = "arrival",
    network_file: options.NetworkPath = None,
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    parse_alpha: options.ParseAlpha = None,
    parse_beta: options.ParseBeta = None,
    pattern: options.PatternName = None,
    fusion: options.Fusion = "0B",
    budget: options.Budget = "10s",
    window: Annotated[
        str | None,
        option(
            "--window",
            panel=NETWORK,
            rare=True,
            metavar="SIZE|off",
            help="HTTP/2's, between workers and servers.",
            show_default="28MB if async, off if sync",
        ),
    ] = None,
    speed: Annotated[
        str | None,
        option(
            "--speed",
            panel=WORKERS,
            metavar="LIST",
            help="Of each worker, 1 being the one profiled: 1,1,0.5.",
        ),
    ] = None,
    worker_bandwidth: Annotated[
        str | None,
        option(
            "--worker-bandwidth",
            panel=NETWORK,
            rare=True,
            metavar="LIST",
            help="Of the workers, one for all or one for each: 10Gbit/s,1Gbit/s.",
        ),
    ] = None,
    server_bandwidth: Annotated[
        str | None,
        option(
            "--server-bandwidth",
            panel=NETWORK,
            rare=True,
            metavar="LIST",
            help="Of the servers, one for all or one for each.",
        ),
    ] = None,
    racks: Annotated[
        int,
        option(
            "--racks", panel=NETWORK, rare=True, metavar="N", help="Machines are spread evenly over so many."
        ),
    ] = 1,
    oversubscription: Annotated[
        float,
        option(
            "--oversubscription",
            panel=NETWORK,
            rare=True,
            metavar="X",
            help="Of each rack's uplink: its machines' bandwidths over its own.",
        ),
    ] = 1.0,
    background: Annotated[
        float,
        option(
            "--background",
            panel=NETWORK,
            rare=True,
            metavar="X",
            help="Fraction of every link that others use, 0 to 1.",
        ),
    ] = 0.0,
    backup: Annotated[
        int,
        option(
            "--backup",
            panel=WORKERS,
            rare=True,
            metavar="N",
            help="Sync: slowest workers that a step does not wait for.",
        ),
    ] = 0,
    spread: Annotated[
        bool,
        option(
            "--spread",
            panel=WORKERS,
            rare=True,
            help="Async: workers begin apart, the last one nearly a step late.",
        ),
    ] = False,
    steps: Annotated[
        int, option("--steps", panel=SIMULATION, metavar="N", help="Steps of each worker to simulate.")
    ] = 1000,
    skip: Annotated[
        int | None,
        option(
            "--skip",
            panel=SIMULATION,
            rare=True,
            metavar="N",
            help="Of them, left out at the beginning.",
            show_default="50, half of few",
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            panel=SIMULATION,
            rare=True,
            metavar="N",
            help="Go on to, until both halves agree to 5%.",
            show_default="16 times the steps",
        ),
    ] = None,
    repeats: Annotated[
        int,
        option(
            "--repeats",
            panel=SIMULATION,
            metavar="N",
            help="Seeds to run; two or more give 95% intervals.",
        ),
    ] = 1,
    seed: options.Seed = 0,
    price_per_worker_hour: Annotated[
        float | None,
        option(
            "--price-per-worker-hour",
            panel=WORKERS,
            metavar="X",
            help="What a worker's machine costs an hour, in any currency.",
        ),
    ] = None,
    price_per_server_hour: Annotated[
        float | None,
        option("--price-per-server-hour", panel=WORKERS, metavar="X", help="What a server's costs."),
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", panel=SIMULATION, rare=True, help="All cores of this machine, or a Ray cluster."),
    ] = "local",
    measured: Annotated[
        Path | None,
        option("--measured", panel=OUTPUT, metavar="FILE", help="CSV to compare with: workers,throughput."),
    ] = None,
    plot: Annotated[
        Path | None, option("--plot", panel=OUTPUT, metavar="FILE", help="Write a page with the curves.")
    ] = None,
    timeline: Annotated[
        Path | None,
        option(
            "--timeline",
            panel=OUTPUT,
            metavar="FILE",
            help="Write a trace of the most machines for Perfetto.",
        ),
    ] = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Predict throughput for any number of workers from one worker's profile, and where it saturates."""
    from hocket.document import write_json, write_whole
    from hocket.graph import load_plan, load_step
    from hocket.graph.format_rules import check_plan
    from hocket.interop import timeline_document
    from hocket.network import parse_duration
    from hocket.predictor import Machines
    from hocket.predictor import predict as run
    from hocket.predictor.answer import answers
    from hocket.predictor.idle_racks import idle_racks_note
    from hocket.predictor.prediction_request import Request
    from hocket.predictor.racks import seen_by_all_reduce
    from hocket.predictor.synthetic_trace import trace
    from hocket.report.prediction_measured import load_points, model_errors
    from hocket.report.prediction_page import render_prediction
    from hocket.text import counted

    options.check_printed(json, wide)
    num_workers, num_servers = counts(workers, "workers"), counts(servers, "servers")
    configurations = len(num_workers) * len(num_servers) * repeats
    if configurations > _MOST_CONFIGURATIONS:
        raise HocketError(
            f"{configurations} combinations and repeats are more than {_MOST_CONFIGURATIONS}; ask for fewer"
        )
    network, of_network = described_network(context, 1, 1)
    _check_outputs(plot, timeline, options.inputs(step, plan, network_file, measured))
    graph = load_step(step)
    schedule = None if plan is None else load_plan(plan)
    if schedule is not None:
        check_plan(schedule, graph, str(plan))
        _check_beside(schedule, str(plan), architecture, barrier)
    exchange = architecture_setting(context, policy, schedule)
    on_servers = exchange.value == "ps"
    if not on_servers and num_servers != [1]:
        raise HocketError(f"servers '{servers}': all-reduce has none to choose; leave them out")
    asked = {(w, m if on_servers else 0) for w in num_workers for m in num_servers}
    points = [] if measured is None else load_points(measured, asked)
    machines = Machines(
        speeds=(1.0,) if speed is None else speeds(speed),
        worker_bps=bandwidths(worker_bandwidth, "worker bandwidth"),
        server_bps=bandwidths(server_bandwidth, "server bandwidth"),
        racks=racks,
        oversubscription=oversubscription,
        background=background,
        backup=backup,
        spread=spread,
    )
    request: dict[str, Any] = {
        "mode": mode,
        "architecture": exchange.value,
        "barrier": barrier,
        "policy": policy,
        "plan": schedule,
        "updates": updates,
        "window_bytes": options.window_bytes(window),
        "machines": machines,
        "steps": steps,
        "skip": min(_SKIPPED, steps // 2) if skip is None else skip,
        "max_steps": max_steps,
        "seed": seed,
        "fusion_bytes": options.fusion_bytes_of(fusion),
        "budget_s": parse_duration(budget),
    }
    # All that takes long comes before the first output: an interrupt leaves none of them.
    drawn = None
    if timeline is not None:
        with progress("tracing"):
            drawn = trace(graph, network, workers=max(num_workers), servers=max(num_servers), **request)
    with progress("predicting") as report:
        rows = run(
            graph,
            network,
            workers=num_workers,
            servers=num_servers,
            repeats=repeats,
            price_per_worker_hour=price_per_worker_hour,
            price_per_server_hour=price_per_server_hour,
            engine=engine,
            progress=report,
            **request,
        )
    page = None
    if plot is not None:
        page = render_prediction(rows, title=rows.title, setup=rows.setup, points=points)
    if timeline is not None and drawn is not None:
        write_json(timeline_document(drawn), timeline)
    if plot is not None and page is not None:
        write_whole(page.encode(), plot)
    idle = None
    if not on_servers:
        of_network = as_reduced(of_network, [seen_by_all_reduce(machines, network, w) for w in num_workers])
        idle = idle_racks_note(Request(graph=graph, network=network, **request), num_workers)
    settings = [
        exchange,
        option_setting(context, "mode", rows[0].mode),
        plan_setting(context, rows[0].policy if policy is None else policy, schedule),
        _window(context, rows[0]),
        *of_network,
    ]
    settings += other_options(context, settings)
    if not is_given(context, "skip"):
        settings.append(option_setting(context, "skip", request["skip"], ""))
    if json:
        asked_for = {
            "assumed": assumed(context, settings, exchange.value),
            "given": given(context, settings, exchange.value),
        }
        print_json([{**msgspec.to_builtins(row), **asked_for} for row in rows])
        for line in answers(rows):
            note(line)
    else:
        said = assumptions(graph, applying(settings, exchange.value))
        _show(context, rows, points, said, scaled_text(network.bandwidth_bps, "bit/s"))
    if idle is not None:
        note(idle)
    errors = [f"{error.model} {error.mean:.1%}" for error in model_errors(rows, points)]
    if errors:
        note(f"{measured}: mean error at {counted(len(points), 'measured point')}: {', '.join(errors)}")
    if plot is not None:
        note(f"{plot}: open it in a browser")


def _show(
    context: typer.Context,
    rows: Sequence[Prediction],
    points: Sequence[MeasuredThroughput],
    said: str,
    at: str,
) -> None:
    """Print the answer of each curve first; caveats go to standard error, beside it."""
    from hocket.predictor.answer import base_note, caveats, verdicts
    from hocket.report.columns import in_one_line
    from hocket.report.prediction_table import narrow_columns, prediction_columns, saturated_rows, terms

    wide = context.params["wide"]
    columns = prediction_columns(rows, points) if wide else in_one_line(narrow_columns(rows, points))
    unexplained = [column for column in terms(columns) if column.heading not in ("Speed-up", "Efficiency")]
    base = base_note(rows)
    remarks = [*([] if base is None else [capitalized(base)]), *([] if wide else [MORE])]
    show(
        list(map(capitalized, verdicts(rows, at))),
        assumptions=said,
        sheets=[Sheet("", columns, saturated_rows(rows), unexplained)],
        remarks=remarks,
        following=_following(context, rows),
    )
    for line in caveats(rows):
        note(line)


def _following(context: typer.Context, rows: Sequence[Prediction]) -> str:
    """The command that may make steps shorter; what ``tune`` does not rank is asked of the other exchange."""
    step = str(context.params["step"])
    row = max(rows, key=lambda row: row.throughput)
    if row.mode == "async":
        like = (*NETWORK_OPTIONS, "workers")
        return command_line(context, "hocket", "predict", step, like=like, architecture="allreduce")
    workers = max(2, row.workers)
    servers = row.servers or None
    return command_line(context, "hocket", "tune", step, workers=workers, servers=servers)


def _check_outputs(plot: Path | None, timeline: Path | None, inputs: list[Path]) -> None:
    for output in (plot, timeline):
        if output is not None:
            options.check_beside_result(output, *inputs)
    if plot is not None and timeline is not None:
        options.check_apart(plot, timeline, "the page and the timeline")


def _check_beside(schedule: Plan, path: str, architecture: str | None, barrier: str | None) -> None:
    """Refuse options that a plan decides."""
    if architecture not in (None, schedule.architecture):
        raise HocketError(f"{path} is for '{schedule.architecture}', not '{architecture}'; leave it out")
    if barrier is not None:
        raise HocketError(f"barrier '{barrier}': {path} has its own; change it there")


def _window(context: typer.Context, row: Prediction) -> AnswerSetting:
    """The window of transfers."""
    from hocket.predictor.prepared import usual_window_bytes

    asked = options.window_bytes(context.params["window"])
    return window_setting(context, usual_window_bytes(row.mode) if asked is None else asked)
