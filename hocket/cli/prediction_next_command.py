"""The command to type after ``hocket predict``'s rows: by what keeps steps long there."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket.cli.next_command import beyond_order, measure_again
from hocket.cli.screen import NETWORK_OPTIONS, command_line
from hocket.cli.step_screen import trains_on
from hocket.text import counted, scaled_text

if TYPE_CHECKING:
    import typer

    from hocket.graph import StepGraph
    from hocket.network import Network
    from hocket.predictor import Prediction
    from hocket.predictor.node_copies import NodeCopies

_WAYS = {"channels last": "--channels-last", "compiled": "--compile"}  # of deriving a step, beside precision
_EFFICIENT = 0.9  # efficiency from which on more workers bring nearly as much as the first ones


def after_prediction(
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
        in_node = 2 if network.nodes is None else network.nodes.gpus
        several = [row.workers for row in rows if row.workers > 1]
        fewest = min([workers for workers in several if workers >= in_node] or several)
        return _beyond_computing(context, chosen, graph, fewest)
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
    from hocket.report.compared_rows import LITTLE

    return gathers_twice(row) and row.bottleneck_utilization >= 1 - LITTLE


def _slower_at_twice(curve: Sequence[Prediction], row: Prediction) -> Prediction | None:
    """The row behind ``row`` in ``curve``, where it is slower and computing is nearly all of ``row``'s step.

    None where it has more than twice the workers: numbers between are still to be asked about.
    """
    from hocket.report.compared_rows import LITTLE

    behind = next((other for other in curve if other.workers > row.workers), None)
    if behind is None or behind.throughput >= row.throughput or behind.workers > 2 * row.workers:
        return None
    computes = "processors" in row.bottleneck and row.bottleneck_utilization >= 1 - LITTLE
    return behind if computes else None


def _beyond_order(context: typer.Context, row: Prediction, bandwidth_bps: float) -> str:
    """The command for where computing, or the network, is nearly all of a step; "" elsewhere."""
    from hocket.report.compared_rows import LITTLE

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
    takes = f"computing takes {row.bottleneck_utilization:.0%}"
    if waits:
        takes += f" and waiting for slower workers {row.uneven_fraction or 0.0:.0%}"
    with_workers = f"with {counted(row.workers, 'worker')}"
    return f"{takes} of a step {with_workers}: reordering transfers could save {saves}"


def _computing_share(row: Prediction) -> float:
    """The part of a step in which its slowest worker computes, whom others wait for under any order."""
    return row.bottleneck_utilization + (row.uneven_fraction or 0.0)


def _is_all_computing(row: Prediction) -> bool:
    """True if more workers of a collective would add nearly as many examples: only updates limit them.

    Waiting for slower workers counts as computing: no order of transfers changes it.
    """
    from hocket.report.compared_rows import LITTLE

    computes = "processors" in row.bottleneck and _computing_share(row) >= 1 - LITTLE
    efficient = (row.efficiency or 0.0) + (row.uneven_fraction or 0.0) >= _EFFICIENT
    return computes and efficient and not row.servers


def _beyond_computing(context: typer.Context, row: Prediction, graph: StepGraph, fewest: int) -> str:
    """The command where computing is nearly all: steps that vary, then updates as ``fewest`` workers have."""
    if graph.num_samples == 1:  # all steps equally long, as a derived one's without --jitter
        like = (*NETWORK_OPTIONS, "workers", "architecture", "policy", "shards", "memory", "clip")
        step = str(context.params["step"])
        command = command_line(context, "hocket", "predict", step, like=like, jitter=0.05)
        return f"{command}  # {_computing(row)}; do steps that vary, as real ones do, wait much?"
    return (
        f"hocket rent --example-offers > offers.csv  # {_computing(row)}; more workers are faster only"
        " because updates grow with them. Put your nodes and prices into that file, then, for updates of"
        f" {fewest * graph.batch_size:,} examples, as {fewest} workers have:"
        f" {_rented(context, graph, fewest * graph.batch_size)}"
    )


def _rented(context: typer.Context, graph: StepGraph, update: int) -> str:
    """The command that ranks offers for the model, derived as this step is; of a GPU's trace for its file.

    ``update``: its examples.
    """
    from hocket.models import zoo

    job = ("--offers", "offers.csv", "--examples", "90M", "--global-batch", str(update))
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
