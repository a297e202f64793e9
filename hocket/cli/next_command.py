"""The next command where no plan is to be trained by: measure again, more workers, or a faster network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from hocket.cli.screen import NETWORK_OPTIONS, command_line
from hocket.text import scaled_text

if TYPE_CHECKING:
    from hocket.graph import StepGraph


def is_rough(graph: StepGraph) -> bool:
    """Tell whether the step's caveat says not to decide by it."""
    from hocket.graph.step import MEASURE_AGAIN

    return MEASURE_AGAIN in graph.caveat


def measure_again(context: typer.Context, graph: StepGraph) -> str:
    """The command before any other, of a step that is not to be decided by; "" for others."""
    if not is_rough(graph):
        return ""
    step = context.params["step"]
    return f"hocket profile ... -o {step}  # once more, while nothing else runs; then this command again"


def beyond_order(
    context: typer.Context,
    why: str,
    *,
    workers: int,
    faster_bps: float | None,
    architecture: str,
) -> str:
    """The command for where no order of transfers helps, which ``why`` tells: it asks for something else.

    ``faster_bps``: the bandwidth where the network is the limit, of which it asks for ten times as much;
    None: it asks for more than ``workers``.
    """
    options: dict[str, Any] = {"clip": context.params["clip"] or None}
    if architecture != "allreduce":
        options["architecture"] = architecture
    if architecture == "ps":
        options["mode"] = "sync"
    if architecture == "fsdp":
        options["shards"] = context.params["shards"]
    like = ("workers", "servers", *NETWORK_OPTIONS)
    if faster_bps is None:
        instead, options["workers"] = "more workers", f"{2 * workers},{4 * workers}"
    else:
        instead = "a faster network"
        options["bandwidth"] = scaled_text(10 * faster_bps, "bit/s").replace(" ", "")
    command = command_line(context, "hocket", "predict", str(context.params["step"]), like=like, **options)
    return f"{command}  # {why}: {instead}?"
