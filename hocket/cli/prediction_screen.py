"""The screen of ``hocket predict``: rows as a table, and remarks on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import typer

from hocket.cli.list_options import singly
from hocket.cli.screen import MORE, Sheet, show
from hocket.cli.step_screen import trains_on
from hocket.text import capitalized

if TYPE_CHECKING:
    from hocket.graph import StepGraph
    from hocket.network import Network
    from hocket.predictor import Prediction
    from hocket.report.prediction_measured import MeasuredThroughput

_PROCESSORS = "worker processors"
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
    base = base_note(rows, has_efficiency=wide)
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
