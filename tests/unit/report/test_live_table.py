"""A live cluster's table: what jobs are called, and what they said, is shown as it is."""

from __future__ import annotations

import io

from rich.console import Console

from hocket.cluster.live.manager_messages import JobStatus, Status
from hocket.report.live_table import live_table


def test_brackets_are_no_markup() -> None:
    job = JobStatus(
        id="[bold]a", model="m", state="failed", stage="failed", gpus=((0, 0),), wanted=1, iteration=0,
        iterations=4, attempt=1, arrival_s=0.0, start_s=1.0, finish_s=2.0, jct_s=2.0, why="KeyError: [/data]",
    )  # fmt: skip
    status = Status(
        now_s=3.0, placement="ls", policy="srpt", gpus_per_server=1, nodes=("[red]",), drained=("[red]",),
        silent=(), jobs=(job,), transfers=(), average_jct_s=None,
    )  # fmt: skip
    printed = io.StringIO()
    Console(file=printed, width=160).print(live_table(status))
    for text in ("[bold]a", "KeyError: [/data]", "drained: [red]", "[red]:0", "waited [s]", "JCT [s]"):
        assert text in printed.getvalue()
