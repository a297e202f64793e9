"""The screen of ``hocket predict``: rows as a table, remarks on them, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import typer

from hocket.cli.list_options import singly
from hocket.cli.next_command import beyond_order, measure_again
from hocket.cli.screen import MORE, NETWORK_OPTIONS, Sheet, command_line, show
from hocket.cli.step_screen import trains_on
from hocket.text import capitalized, counted, scaled_text

if TYPE_CHECKING:
    from hocket.graph import StepGraph
    from hocket.network import Network
    from hocket.predictor import Prediction
    from hocket.predictor.node_copies import NodeCopies
    from hocket.report.prediction_measured import MeasuredThroughput

_PROCESSORS = "worker processors"
_WAYS = {"channels last": "--channels-last", "compiled": "--compile"}  # of deriving a step, beside precision
_EFFICIENT = 0.9  # efficiency from which on more workers bring nearly as much as the first ones
_CROWDED, _CROWDED_LIMIT = 1.5, 1.1
"""Times its share of the bytes, from which a server is said to have most, and where that is the limit."""


class Answer(NamedTuple):
    """A prediction's answers, on what they rest, remarks on them, and the next command."""

    lines: Sequence[str]
    assumptions: str
    remarks: Sequence[str]
    following: str


def by_device(graph: StepGraph, rows: Sequence[Prediction]) -> list[Prediction]:
    """``rows`` for people, whose workers' processors are called GPUs where the step is of one."""
    if trains_on(graph):
        return list(rows)
    return [
        msgspec.structs.replace(row, bottleneck="worker GPUs") if row.bottleneck == _PROCESSORS else row
        for row in rows
    ]


def show_rows(
    context: typer.Context,
    rows: Sequence[Prediction],
    points: Sequence[MeasuredThroughput],
    answer: Answer,
    gpus: int,
) -> None:
    """Print the answers first, and what makes figures uncertain last; of many rows a few, of whole nodes.

    ``gpus``: of a node, 1 where there is no node.
    """
    from hocket.columns import in_one_line
    from hocket.predictor.answer import caveats
    from hocket.predictor.prediction_notes import base_note
    from hocket.report.prediction_table import narrow_columns, prediction_columns, saturated_rows
    from hocket.report.telling_rows import telling_rows

    wide = context.params["wide"]
    named = singly(context.params["workers"]) | {point.workers for point in points}
    shown = list(rows) if wide else telling_rows(rows, named, gpus)
    columns = prediction_columns(shown, points) if wide else in_one_line(narrow_columns(shown, points))
    more = MORE
    if left_out := len(rows) - len(shown):
        more = f"{left_out} of {len(rows)} rows are left out: --wide shows all rows and columns"
    kept = set(map(id, shown))
    bold = [at_knee for row, at_knee in zip(rows, saturated_rows(rows), strict=True) if id(row) in kept]
    base = base_note(rows)
    remarks = [
        *([] if base is None else [capitalized(base)]),
        *_free_machines(context, rows),
        *answer.remarks,
        *([] if wide else [more]),
    ]
    show(
        answer.lines,
        assumptions=answer.assumptions,
        sheets=[Sheet("", columns, bold)],
        remarks=remarks,
        notes=caveats(rows),
        following=answer.following,
    )


def following_command(
    context: typer.Context,
    graph: StepGraph,
    network: Network,
    rows: Sequence[Prediction],
    copied: NodeCopies | None,
) -> str:
    """The command that may make steps shorter; what ``tune`` does not rank is asked of the other exchange.

    Where one worker alone is fastest, no order of transfers helps as much as a faster network. ``copied``:
    copies in nodes that are faster than all of ``rows``.
    """
    from hocket.predictor.prediction_curves import curves, saturation

    if again := measure_again(context, graph):
        return again
    if copied is not None:
        return _a_copy_a_node(context, copied)
    step = str(context.params["step"])
    row = max(rows, key=lambda row: row.throughput)
    if row.mode == "async":
        like = (*NETWORK_OPTIONS, "workers")
        return command_line(context, "hocket", "predict", step, like=like, architecture="allreduce")
    clip = context.params["clip"] or None
    if row.workers == 1 or (row.speedup or 1.0) < 1.0:
        faster = scaled_text(10 * network.bandwidth_bps, "bit/s").replace(" ", "")
        same = (*NETWORK_OPTIONS, "workers", "servers", "architecture", "mode")
        return command_line(context, "hocket", "predict", step, clip=clip, like=same, bandwidth=faster)
    (curve,) = (curve for curve in curves(rows) if row in curve)
    chosen = saturation(curve) or row  # more workers are not worth an order of transfers, either
    slower = _slower_at_twice(curve, chosen)
    chosen = slower or chosen
    servers = chosen.servers or None
    if chosen is curve[-1] and _is_all_computing(chosen):
        return _beyond_computing(context, chosen, graph)
    if without_gain := _beyond_order(context, chosen, network.bandwidth_bps):
        return without_gain
    of_shards = {name: context.params[name] for name in ("memory", "shards")}
    if chosen.architecture == "fsdp":
        of_shards["architecture"] = "fsdp"
    command = command_line(
        context, "hocket", "tune", step, clip=clip, workers=chosen.workers, servers=servers, **of_shards
    )
    if not _sends_more_than_it_must(chosen):
        return command if slower is None else f"{command}  # does another plan make {slower.workers} faster?"
    busy = f"{chosen.bottleneck_utilization:.0%}"
    return f"{command}  # the {chosen.bottleneck} takes {busy} of a step: units that stay gathered send less"


def _a_copy_a_node(context: typer.Context, copied: NodeCopies) -> str:
    """The command for groups of a node's GPUs, which ``copied`` found to be faster."""
    command = command_line(
        context,
        *("hocket", "predict", str(context.params["step"])),
        like=(*NETWORK_OPTIONS, "clip", "policy", "memory"),
        architecture="fsdp",
        workers=f"{copied.gpus},{copied.row.workers}",
        shards=copied.gpus,
    )
    return f"{command}  # a copy in each node (HSDP) sends less between them"


def _sends_more_than_it_must(row: Prediction) -> bool:
    """True if the network is nearly all of a sharded step that gathers parameters twice."""
    from hocket.predictor.node_copies import gathers_twice
    from hocket.report.verdicts import LITTLE

    return gathers_twice(row) and row.bottleneck_utilization >= 1 - LITTLE


def _slower_at_twice(curve: Sequence[Prediction], row: Prediction) -> Prediction | None:
    """The row behind ``row`` in ``curve``, where it is slower and computing is nearly all of ``row``'s step.

    None where it has more than twice the workers: numbers between are still to be asked about.
    """
    from hocket.report.verdicts import LITTLE

    behind = next((other for other in curve if other.workers > row.workers), None)
    if behind is None or behind.throughput >= row.throughput or behind.workers > 2 * row.workers:
        return None
    computes = "processors" in row.bottleneck and row.bottleneck_utilization >= 1 - LITTLE
    return behind if computes else None


def _beyond_order(context: typer.Context, row: Prediction, bandwidth_bps: float) -> str:
    """The command for where computing, or the network, is nearly all of a step; "" elsewhere."""
    from hocket.report.verdicts import LITTLE

    if row.bottleneck_utilization < 1 - LITTLE or _sends_more_than_it_must(row):
        return ""
    computes = "processors" in row.bottleneck
    so = "" if row.architecture == "fsdp" else ", so an order of transfers gains little"
    return beyond_order(
        context,
        _computing(row)
        if computes
        else f"the {row.bottleneck} takes {row.bottleneck_utilization:.0%} of a step{so}",
        workers=row.workers,
        faster_bps=None if computes else bandwidth_bps,
        architecture=row.architecture,
    )


def _computing(row: Prediction) -> str:
    """A clause on how much of a step computing takes, and so what any order of transfers could save."""
    share = _computing_share(row)
    rest = f"{1 - share:.0%}"
    saves = "nothing" if rest == "0%" else f"at most {rest}"
    waits = share - row.bottleneck_utilization >= 0.005  # a percent, rounded
    takes = "computing and waiting for slower workers take" if waits else "computing takes"
    with_workers = f"with {counted(row.workers, 'worker')}"
    return f"{takes} {share:.0%} of a step {with_workers}: reordering transfers could save {saves}"


def _computing_share(row: Prediction) -> float:
    """The part of a step in which its slowest worker computes, whom others wait for under any order."""
    return row.bottleneck_utilization + (row.uneven_fraction or 0.0)


def _is_all_computing(row: Prediction) -> bool:
    """True if more workers of a collective would add nearly as many examples: only updates limit them.

    Waiting for slower workers counts as computing: no order of transfers changes it.
    """
    from hocket.report.verdicts import LITTLE

    computes = "processors" in row.bottleneck and _computing_share(row) >= 1 - LITTLE
    efficient = (row.efficiency or 0.0) + (row.uneven_fraction or 0.0) >= _EFFICIENT
    return computes and efficient and not row.servers


def _beyond_computing(context: typer.Context, row: Prediction, graph: StepGraph) -> str:
    """The command where computing is nearly all: steps that vary, then updates of one size."""
    if graph.num_samples == 1:  # all steps equally long, as a derived one's without --jitter
        like = (*NETWORK_OPTIONS, "workers", "architecture", "policy", "shards", "memory", "clip")
        step = str(context.params["step"])
        command = command_line(context, "hocket", "predict", step, like=like, jitter=0.05)
        return f"{command}  # {_computing(row)}; do steps that vary, as real ones do, wait much?"
    return (
        f"hocket rent --example-offers > offers.csv  # {_computing(row)}; more workers go faster, in larger"
        f" updates; with a fixed update size: {_rented(context, graph)}"
    )


def _rented(context: typer.Context, graph: StepGraph) -> str:
    """The command that ranks offers for the model, derived as this step is; of a GPU's trace for its file."""
    from hocket.models import zoo

    job = ("--offers", "offers.csv", "--examples", "90M", "--global-batch", "N")
    if not graph.precision and not trains_on(graph):
        return shlex.join(("hocket", "rent", str(context.params["step"]), *job))
    way: list[str] = []
    if graph.precision:
        precision, *layout = graph.precision.split(", ")
        way = [
            "--batch-size",
            str(graph.batch_size),
            "--precision",
            precision,
            *(_WAYS[said] for said in layout if said in _WAYS),
        ]
    model = graph.model if graph.model in zoo.names() else "FILE.py:FACTORY"
    return shlex.join(("hocket", "rent", model, *way, *job))


def beside_clipped(
    graph: StepGraph, network: Network, request: dict[str, Any], rows: Sequence[Prediction]
) -> str:
    """A line on the fastest row: under ddp clipped and unclipped, and unclipped by the best policy."""
    from hocket.graph.clipped_step import clipped
    from hocket.predictor import predict as run
    from hocket.text import rate_text

    row = max(rows, key=lambda row: row.throughput)
    of_ddp = {**request, "policy": "ddp", "plan": None, "fusion_bytes": 0}
    (ddp,) = run(graph, network, workers=row.workers, **of_ddp)
    said = f"With {row.machines}: clipped under ddp {rate_text(ddp.throughput)}"
    if clipped(graph) is graph:
        return f"{said}; what it would be unclipped the profile does not say: it clips itself"
    others = [of_ddp, request, {**of_ddp, "policy": "bytescheduler"}]
    unclipped = [run(graph, network, workers=row.workers, **{**other, "clip": False})[0] for other in others]
    best = max(unclipped, key=lambda row: row.throughput)
    said += f" and unclipped {rate_text(unclipped[0].throughput)}"
    return f"{said}; unclipped at best {rate_text(best.throughput)} ({best.policy}, whole reductions)"


def partly_filled(network: Network, num_workers: Sequence[int]) -> str | None:
    """A note on numbers of workers that leave GPUs, and with them NICs, of the last of several nodes idle."""
    from hocket.predictor.prediction_notes import workers_text

    nodes = network.nodes
    if nodes is None or nodes.nics == 1:
        return None
    partly = sorted(count for count in num_workers if count > nodes.gpus and count % nodes.gpus)
    if not partly:
        return None
    return (
        f"{workers_text(partly)}: the last node is filled in part, and only the NICs near its GPUs are used;"
        f" ask for whole nodes, multiples of {nodes.gpus}"
    )


def _free_machines(context: typer.Context, rows: Sequence[Prediction]) -> list[str]:
    """A remark on machines that cost nothing for want of a price; none where all or none have one."""
    prices = {kind: context.params[f"price_per_{kind}_hour"] for kind in ("worker", "server")}
    missing = [kind for kind, price in prices.items() if price is None]
    if len(missing) != 1 or not any(row.servers for row in rows):
        return []
    return [f"{missing[0].capitalize()}s cost nothing here: no --price-per-{missing[0]}-hour was given"]


def crowded_servers(graph: StepGraph, rows: Sequence[Prediction]) -> list[str]:
    """A remark on servers of which one has most of the bytes; none where all have about as many.

    A smaller excess counts where servers' interfaces are what is busiest.
    """
    import numpy as np

    from hocket.network import assign_servers

    said = []
    for servers in sorted({row.servers for row in rows if row.servers > 1 and row.policy != "p3"}):
        home = assign_servers(graph.parameter_bytes.tolist(), servers)
        loads = np.bincount(home, weights=graph.parameter_bytes, minlength=servers)
        share = float(loads.max() / loads.sum())
        limited = any(row.servers == servers and row.bottleneck in ("downlink", "uplink") for row in rows)
        if share > (_CROWDED_LIMIT if limited else _CROWDED) / servers:
            said.append(
                f"Of {servers} servers one has {share:.0%} of the bytes, as each parameter is on one server:"
                " --policy p3 cuts large ones"
            )
    return said
