"""Tables of cluster runs, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.cluster.results.paired import Estimate, Sweep
from hocket.cluster.results.run_statistics import PARTS, ClusterRow
from hocket.report.columns import Column, number_column, terminal_columns, text_column
from hocket.report.ranking_table import UNDEFINED, RankingCell, decimals_for
from hocket.text import time_unit

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

    def seconds(heading: str, short: str, meaning: str, values_s: Sequence[float | None]) -> Column:
        scaled = [None if value is None else value * unit.per_second for value in values_s]
        return number_column(heading, short, unit.symbol, meaning, scaled)

    def part(name: str) -> Column:
        _, heading, meaning = PART_NAMES[name]
        return seconds(heading, heading, meaning, [getattr(row, f"average_{name}_s") for row in rows])

    sources = [row.source for row in rows]
    columns = [
        text_column("Placement", "Placement", "How GPUs are chosen.", [row.placement for row in rows]),
        text_column("Policy", "Policy", "Who computes and transfers first.", [row.policy for row in rows]),
        seconds(
            *("Average JCT", "JCT", "From arrival to end, the mean over jobs."),
            [row.average_jct_s for row in rows],
        ),
        seconds("Median", "Median", "Half of the jobs took no longer.", [row.median_jct_s for row in rows]),
        seconds("95th pct.", "p95", "19 of 20 jobs took no longer.", [row.p95_jct_s for row in rows]),
        number_column(
            *("Utilization", "Util.", "%", "Share of all GPUs' time spent computing."),
            [100 * row.gpu_utilization for row in rows],
            2,
        ),
        seconds("Makespan", "Makespan", "From first arrival to last end.", [row.makespan_s for row in rows]),
        *(part(name) for name in PARTS),
    ]
    if len(set(sources)) > 1:
        columns.insert(0, text_column("Jobs", "Jobs", "Which job set.", sources))
    chunks = [chunk_text(row) for row in rows]
    if len(set(chunks)) > 1:
        columns.insert(2, text_column("Chunk", "Chunk", "At whose end transfers may be preempted.", chunks))
    return [column for column in columns if any(cell.value is not None for cell in column.cells)]


def chunk_text(row: ClusterRow) -> str:
    """At the end of which chunks a row's policy may preempt transfers; empty where that is not known."""
    return "" if row.setting is None else f"{row.setting.chunk_bytes / 1e6:g} MB"


def cluster_table(rows: Sequence[ClusterRow]) -> Table:
    """``rows`` for the terminal."""
    return terminal_columns(cluster_columns(rows), [False] * len(rows))


def sweep_table(sweep: Sweep) -> Table:
    """Each placement and policy over all job sets, the one with the lowest average standing out."""
    rows = sweep.rows
    unit = time_unit(row.average_jct_s.mean for row in rows)

    def seconds(heading: str, estimates: Sequence[Estimate]) -> Column:
        values = [each.mean * unit.per_second for each in estimates]
        return number_column(heading, heading, unit.symbol, "", values)

    averages = [row.average_jct_s for row in rows]
    halves = [RankingCell(*_half(each, unit.per_second)) for each in averages]
    columns = [
        text_column("Placement", "Placement", "", [row.placement for row in rows]),
        text_column("Policy", "Policy", "", [row.policy for row in rows]),
        seconds("JCT", averages),
        Column("± 95%", "± 95%", unit.symbol, "", halves),
        seconds("Median", [row.median_jct_s for row in rows]),
        seconds("p95", [row.p95_jct_s for row in rows]),
        number_column("Util.", "Util.", "%", "", [100 * row.gpu_utilization.mean for row in rows], 2),
        seconds("Makespan", [row.makespan_s for row in rows]),
    ]
    least = min(each.mean for each in averages)
    return terminal_columns(columns, [each.mean == least for each in averages])


def _half(estimate: Estimate, scale: float) -> tuple[str, float | None]:
    if estimate.low is None or estimate.high is None:
        return UNDEFINED, None
    half = (estimate.high - estimate.low) / 2 * scale
    return f"±{half:.{decimals_for([estimate.mean * scale])}f}", half


def paired_table(sweep: Sweep) -> Table | None:
    """Each row against the first one on the same job sets, below 0: faster; None of a single row."""
    first = sweep.rows[0]
    pairs = [p for p in sweep.pairs if (p.than_placement, p.than_policy) == (first.placement, first.policy)]
    if not pairs:
        return None
    columns = [
        text_column("Placement", "Placement", "", [pair.placement for pair in pairs]),
        text_column("Policy", "Policy", "", [pair.policy for pair in pairs]),
        number_column("", "JCT", "%", "", [100 * pair.relative.mean for pair in pairs], 2),
        Column("", "95% interval", "%", "", [RankingCell(*_interval(pair.relative)) for pair in pairs]),
        number_column("", "p95", "%", "", [100 * pair.p95_relative.mean for pair in pairs], 2),
        Column("", "95% interval", "%", "", [RankingCell(*_interval(pair.p95_relative)) for pair in pairs]),
        Column(
            *("", f"Faster on\nof {sweep.job_sets}", "", ""),
            [RankingCell(str(pair.faster), pair.faster) for pair in pairs],
        ),
    ]
    return terminal_columns(columns, [False] * len(pairs))


def _interval(estimate: Estimate) -> tuple[str, float | None]:
    if estimate.low is None or estimate.high is None:
        return UNDEFINED, None
    return f"{100 * estimate.low:+.2f} .. {100 * estimate.high:+.2f}", 100 * estimate.low
