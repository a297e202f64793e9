"""The page of results of a step: the best policy beside the usual one, all of them ranked, and why."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.columns import Column, led_by, number_column, percent_column
from hocket.errors import HocketError
from hocket.graph.plan import ARCHITECTURE_NAMES
from hocket.graph.result import ResultRow
from hocket.planner.named_planners import BEST_BUCKETS
from hocket.report.alternatives import busy_columns, overlap_text, timeline_text
from hocket.report.best_result import num_level_with, over_bound, rank_entries, setup_of, usual_like
from hocket.report.html_page import Tile, network_line, render_page
from hocket.report.result_files import Entry
from hocket.report.step_plot_data import TimelinePanel, overlap_figure, timeline_figure
from hocket.report.step_table import ranking_columns
from hocket.text import TimeUnit, counted, decimals_for, time_text, time_unit

# Read on a phone without a move to the side.
_FIRST = ("Policy", "Step time")
_MOST_SETUPS = 4


def render(entries: Sequence[Entry], *, title: str = "Hocket report") -> str:
    """The page for ``entries``: headline, ranked table, overlap plot, timelines of the best and usual run.

    Raises
    ------
    HocketError
        Without any result.
    """
    if not entries:
        raise HocketError("a report needs at least one result")
    ranking = rank_entries(entries)
    rows = [entry.row for entry in ranking]
    unit = time_unit(row.iteration_s for row in rows)
    panels = _panels(ranking, unit)
    data = {
        "unit": unit._asdict(),
        "overlap": overlap_figure(ranking),
        "timelines": timeline_figure(panels, unit),
    }
    origins = [entry.origin for entry in ranking]
    return render_page(
        "page.html",
        data,
        origins=origins,
        title=title,
        setup=f"{_setup_line(rows)} · {network_line(origins)}",
        tiles=_tiles(ranking, unit),
        columns=_columns(ranking),
        highlighted=[i == 0 for i in range(len(ranking))],
        overlap_text=overlap_text(rows),
        timeline_text=timeline_text(panels, unit),
        busy=busy_columns(panels),
        drawn=_policies_text(panels),
        sharded=any(row.architecture == "fsdp" for row in rows),
    )


def _setup_line(rows: Sequence[ResultRow]) -> str:
    """A line on the setups of ``rows``: what they share, or the number or names of those that differ."""
    models = list(dict.fromkeys(row.model for row in rows))
    architectures = dict.fromkeys(ARCHITECTURE_NAMES.get(row.architecture, row.architecture) for row in rows)
    workers, servers = {row.workers for row in rows}, {row.servers for row in rows} - {0}
    parts = [models[0] if len(models) == 1 else f"{len(models)} models", " and ".join(architectures)]
    parts.append(counted(workers.pop(), "worker") if len(workers) == 1 else "several numbers of workers")
    if servers:
        parts.append(counted(servers.pop(), "server") if len(servers) == 1 else "several numbers of servers")
    return " · ".join(parts)


def _tiles(ranking: Sequence[Entry], unit: TimeUnit) -> list[Tile]:
    """The best result beside the usual policy; of several setups the best of each."""
    firsts = {setup_of(entry.row): entry.row for entry in reversed(ranking)}
    if len(firsts) > 1:
        best_first = sorted(firsts.values(), key=lambda row: -row.throughput)
        return [_setup_tile(row, ranking, unit) for row in best_first[:_MOST_SETUPS]]
    best = ranking[0].row
    above, usual = over_bound(best), usual_like(best, ranking)
    level = num_level_with(best, ranking)
    field = f"of {counted(len(ranking), 'result')}" + (
        f", level with {counted(level, 'other')}" if level else ""
    )
    rate = f"{best.throughput:.{decimals_for([best.throughput])}f} examples/s"
    tiles = [
        Tile("Best policy", best.title, field),
        Tile("Step time", time_text(best.iteration_s, unit), rate),
    ]
    if usual is not None and usual is not best and best.iteration_s > 0:
        gain = usual.iteration_s / best.iteration_s
        note = f"{usual.policy}: {time_text(usual.iteration_s, unit)}"
        tiles.append(Tile(f"Against {usual.policy}", f"{gain:.2f}x", note))
        tiles += _bucket_tile(best, ranking, unit)
    if above is not None:
        note = f"the bound is {time_text(best.bound_s, unit)}"
        tiles.append(Tile("Above the bound", f"{above:z.1%}", note))
    note = f"overlap {best.overlap:.3f}, rho {best.rho:.3f}"
    tiles.append(Tile("Utilization", f"{best.utilization:.1%}", note))
    return tiles


def _setup_tile(best: ResultRow, ranking: Sequence[Entry], unit: TimeUnit) -> Tile:
    """The best policy of one of several setups."""
    setup, usual = setup_of(best), usual_like(best, ranking)
    setups = {setup_of(entry.row) for entry in ranking}
    parts = [ARCHITECTURE_NAMES.get(setup.architecture, setup.architecture)]
    if len({each.model for each in setups}) > 1:
        parts.insert(0, setup.model)
    if len({each.workers for each in setups}) > 1:
        parts.append(counted(setup.workers, "worker"))
    if len({each.servers for each in setups} - {0}) > 1 and setup.servers:
        parts.append(counted(setup.servers, "server"))
    note = time_text(best.iteration_s, unit)
    if usual is best:
        note += ", the usual policy"
    elif usual is not None and best.iteration_s > 0:
        gain = f"{usual.iteration_s / best.iteration_s:.2f}x"
        note += f", {gain} against {usual.policy} ({time_text(usual.iteration_s, unit)})"
    return Tile(f"Best: {', '.join(parts)}", best.title, note)


def _bucket_tile(best: ResultRow, ranking: Sequence[Entry], unit: TimeUnit) -> list[Tile]:
    """The best result beside DDP's best bucket size, where that is another one of ``ranking``."""
    found = (entry.row for entry in ranking if entry.row.policy == BEST_BUCKETS)
    buckets = next((row for row in found if row is not best), None)
    if buckets is None:
        return []
    note = f"{buckets.title}: {time_text(buckets.iteration_s, unit)}"
    return [Tile(f"Against {BEST_BUCKETS}", f"{buckets.iteration_s / best.iteration_s:.2f}x", note)]


def _columns(ranking: Sequence[Entry]) -> list[Column]:
    """The ranking's columns with each row's place, the usual policy's step beside its own."""
    rows = [entry.row for entry in ranking]
    places = number_column("#", list(range(1, len(rows) + 1)), "Place, the fastest first.", decimals=0)
    columns = [places, *ranking_columns(rows)]
    first = [places.heading, *_FIRST]
    usual = [usual_like(row, ranking) for row in rows]
    longer = [
        None if other is None or other.iteration_s <= 0 else row.iteration_s / other.iteration_s - 1
        for row, other in zip(rows, usual, strict=True)
    ]
    names = sorted({other.policy for other in usual if other is not None})
    if names:
        meaning = f"The step's difference from {' or '.join(names)}'s on the same setup."
        heading = f"Against {names[0]}" if len(names) == 1 else "Against usual"
        columns.append(percent_column(heading, longer, meaning))
        first.append(heading)
    return led_by(columns, *first)


def _panels(ranking: Sequence[Entry], unit: TimeUnit) -> list[TimelinePanel]:
    """The best result that has a timeline, below the usual policy's of its setup, or else the next best."""
    drawn = [place for place, entry in enumerate(ranking) if entry.timeline is not None]
    if not drawn:
        return []
    best = ranking[drawn[0]].row
    alike = [place for place in drawn[1:] if setup_of(ranking[place].row) == setup_of(best)]
    usual = [place for place in alike if ranking[place].row is usual_like(best, ranking)]
    beside = (usual or alike or drawn[1:])[:1]
    return [
        TimelinePanel(_caption(place, ranking, unit), ranking[place].row.policy, timeline)
        for place in (*beside, drawn[0])
        if (timeline := ranking[place].timeline) is not None
    ]


def _policies_text(panels: Sequence[TimelinePanel]) -> str:
    """The policies of ``panels`` as they lie on the page: the best is the last."""
    *above, best = [panel.policy for panel in panels] or [""]
    return f"{best} below {above[0]}" if above else best


def _caption(place: int, ranking: Sequence[Entry], unit: TimeUnit) -> str:
    row = ranking[place].row
    return f"{row.title} ({place + 1} of {len(ranking)}), mean {time_text(row.iteration_s, unit)}"
