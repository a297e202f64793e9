"""Tables of cluster runs, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.cluster.results.paired import Estimate, Sweep
from hocket.cluster.results.run_statistics import PARTS, ClusterRow
from hocket.columns import (
    Cell,
    Column,
    known,
    number_column,
    percent_column,
    terminal_table,
    text_column,
    time_column,
)
from hocket.text import UNDEFINED, decimals_for, time_unit

# Parts of a job's time: the part's name, the heading in tables, which have many columns, and its meaning.
PART_NAMES = {
    "queueing": ("Queueing", "Queued", "From arrival until it is placed, an average job."),
    "computing": ("Computing", "Comp.", "Its forward and backward passes, an average job."),
    "gpu_wait": ("GPU wait", "GPU wait", "Launched, or another job computes on its GPU, an average job."),
    "transferring": ("Transferring", "Transf.", "Its transfers under way, an average job."),
    "network_wait": ("Network wait", "Net wait", "Ready to transfer, not admitted, an average job."),
}


def cluster_columns(rows: Sequence[ClusterRow]) -> list[Column]:
    """The columns of ``rows``, in the order given; what no row has gets none, nor does what all share."""
    unit = time_unit(row.average_jct_s for row in rows)

    def part(name: str) -> Column:
        _, heading, meaning = PART_NAMES[name]
        return time_column(heading, [getattr(row, f"average_{name}_s") for row in rows], unit, meaning)

    columns = [
        text_column("Placement", [row.placement for row in rows], "The rule that chooses GPUs."),
        text_column(
            "Policy", [row.policy for row in rows], "The rule for which job computes and transfers first."
        ),
        time_column(
            "Average JCT",
            [row.average_jct_s for row in rows],
            unit,
            "From arrival to end, the mean over jobs.",
            short="JCT",
        ),
        time_column("Median", [row.median_jct_s for row in rows], unit, "Half of the jobs took no longer."),
        time_column(
            "95th pct.", [row.p95_jct_s for row in rows], unit, "19 of 20 jobs took no longer.", short="p95"
        ),
        percent_column(
            "Utilization",
            [row.gpu_utilization for row in rows],
            "Share of all GPUs' time spent computing.",
            short="Util.",
            decimals=2,
        ),
        time_column("Makespan", [row.makespan_s for row in rows], unit, "From first arrival to last end."),
        *(part(name) for name in PARTS),
        number_column(
            "Interrupted",
            [None if row.outages is None else float(row.outages.interruptions) for row in rows],
            "Times that a job lost its GPUs because a server went down.",
            short="Intr.",
            decimals=0,
        ),
        number_column(
            "Lost",
            [None if row.outages is None else row.outages.lost_gpu_hours for row in rows],
            "GPU hours that came to nothing by that: computed since a job's last checkpoint.",
            unit="GPU h",
        ),
        number_column(
            "Preempted",
            [None if row.preemption is None else float(row.preemption.preemptions) for row in rows],
            "Times that a job left its GPUs to one ahead of it.",
            short="Preempt.",
            decimals=0,
        ),
        *(
            number_column(name, [_resizes(row, key) for row in rows], told, decimals=0)
            for name, key, told in (
                ("Shrunk", "shrunk", "Times that a job gave GPUs to one that waited."),
                ("Grown", "grown", "Times that a job took GPUs that were idle."),
            )
        ),
        number_column(
            "Checkpoints",
            [None if row.preemption is None else row.preemption.checkpoint_gpu_hours for row in rows],
            "GPU hours that jobs were saved, restored and launched again for that.",
            short="Saving",
            unit="GPU h",
        ),
    ]
    sources, chunks = [row.source for row in rows], [chunk_text(row) for row in rows]
    if len(set(sources)) > 1:
        columns.insert(0, text_column("Jobs", sources, "Which job set."))
    if len(set(chunks)) > 1:
        columns.insert(2, text_column("Chunk", chunks, "At whose end transfers may be preempted."))
    return known(columns)


def _resizes(row: ClusterRow, key: str) -> float | None:
    """The times that jobs have shrunk or grown, None where they do not."""
    times: int | None = None if row.preemption is None else getattr(row.preemption, key)
    return None if times is None else float(times)


def chunk_text(row: ClusterRow) -> str:
    """At the end of which chunks a row's policy may preempt transfers; empty where that is not known."""
    return "" if row.setting is None else f"{row.setting.chunk_bytes / 1e6:g} MB"


def cluster_table(rows: Sequence[ClusterRow]) -> Table:
    """``rows`` for the terminal."""
    return terminal_table(cluster_columns(rows))


def bound_line(average_jct_s: float, bound_s: float) -> str:
    """A sentence on how far the average is from what any policy and placement could reach."""
    unit = time_unit([average_jct_s])
    average = f"{average_jct_s * unit.per_second:.{decimals_for([average_jct_s * unit.per_second])}f}"
    times = average_jct_s / bound_s
    return f"average JCT {average} {unit.symbol}, at most {times:.3g} times what any policy could reach"


def sweep_table(sweep: Sweep) -> Table:
    """Each placement and policy over all job sets, the one with the lowest average standing out."""
    rows = sweep.rows
    unit = time_unit(row.average_jct_s.mean for row in rows)

    averages = [row.average_jct_s for row in rows]
    halves = [_half(each, unit.per_second) for each in averages]
    columns = [
        text_column("Placement", [row.placement for row in rows]),
        text_column("Policy", [row.policy for row in rows]),
        time_column("JCT", [each.mean for each in averages], unit),
        Column("± 95%", halves, unit=unit.symbol),
        time_column("Median", [row.median_jct_s.mean for row in rows], unit),
        time_column("p95", [row.p95_jct_s.mean for row in rows], unit),
        percent_column("Util.", [row.gpu_utilization.mean for row in rows], decimals=2),
        time_column("Makespan", [row.makespan_s.mean for row in rows], unit),
    ]
    interruptions = number_column("Intr.", [_mean(row.interruptions) for row in rows], decimals=1)
    lost = number_column("Lost", [_mean(row.lost_gpu_hours) for row in rows], unit="GPU h")
    columns += known([interruptions, lost])
    least = min(each.mean for each in averages)
    return terminal_table(columns, [each.mean == least for each in averages])


def _mean(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.mean


def _half(estimate: Estimate, scale: float) -> Cell:
    if estimate.low is None or estimate.high is None:
        return Cell(UNDEFINED, None)
    half = (estimate.high - estimate.low) / 2 * scale
    return Cell(f"±{half:.{decimals_for([estimate.mean * scale])}f}", half)


def paired_table(sweep: Sweep) -> Table | None:
    """Each row against the first one on the same job sets, below 0: faster; None of a single row."""
    first = sweep.rows[0]
    pairs = [p for p in sweep.pairs if (p.than_placement, p.than_policy) == (first.placement, first.policy)]
    if not pairs:
        return None
    columns = [
        text_column("Placement", [pair.placement for pair in pairs]),
        text_column("Policy", [pair.policy for pair in pairs]),
        percent_column("JCT", [pair.relative.mean for pair in pairs], decimals=2),
        Column("95% interval", [_interval(pair.relative) for pair in pairs], unit="%"),
        percent_column("p95", [pair.p95_relative.mean for pair in pairs], decimals=2),
        Column("95% interval", [_interval(pair.p95_relative) for pair in pairs], unit="%"),
        number_column(f"Faster on\nof {sweep.job_sets}", [pair.faster for pair in pairs], decimals=0),
    ]
    return terminal_table(columns)


def _interval(estimate: Estimate) -> Cell:
    if estimate.low is None or estimate.high is None:
        return Cell(UNDEFINED, None)
    return Cell(f"{100 * estimate.low:+.2f} .. {100 * estimate.high:+.2f}", 100 * estimate.low)
