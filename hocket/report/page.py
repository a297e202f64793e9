"""One HTML page that needs nothing else: scripts, styles and figures inline, and no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jinja2

from hocket.errors import HocketError
from hocket.report.figures import Panel, overlap_figure, timeline_figure
from hocket.report.load import Entry
from hocket.report.packed import packed_json, packed_plotly
from hocket.report.ranking import num_level_with, over_bound, ranked, setup_of, worst_like
from hocket.report.table import decimals_for, ranking_table, time_text
from hocket.words import TimeUnit, counted, time_unit

_ARCHITECTURES = {"ps": "parameter servers", "allreduce": "all-reduce"}


class Tile(NamedTuple):
    """One of the figures that the page opens with."""

    label: str
    figure: str
    note: str


def render(entries: Sequence[Entry], *, title: str = "Hocket report") -> str:
    """The page for ``entries``: headline, ranked table, overlap plot and timelines of the worst and best run.

    Raises
    ------
    HocketError
        Without any result.
    """
    if not entries:
        raise HocketError("a report needs at least one result")
    ranking = ranked(entries)
    unit = time_unit(entry.row.iteration_s for entry in ranking)
    data = {
        "unit": unit._asdict(),
        "overlap": overlap_figure(ranking),
        "timelines": timeline_figure(_panels(ranking, unit), unit),
    }
    return rendered(
        "page.html",
        data,
        title=title,
        setup=_setup_line(ranking),
        tiles=_tiles(ranking, unit),
        table=ranking_table([entry.row for entry in ranking]),
        has_timelines=data["timelines"] is not None,
    )


def rendered(template: str, data: Any, **variables: Any) -> str:
    """A page of this folder's ``template``, with ``data`` for its scripts and plotly packed into it."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hocket.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(template).render(
        **variables, data=packed_json(data), plotly=packed_plotly()
    )


def _setup_line(ranking: Sequence[Entry]) -> str:
    setups = list(dict.fromkeys(setup_of(entry.row) for entry in ranking))
    if len(setups) > 1:
        return f"{len(setups)} setups of model, architecture, workers and servers"
    setup = setups[0]
    architecture = _ARCHITECTURES.get(setup.architecture, setup.architecture)
    parts = [setup.model, architecture, counted(setup.workers, "worker")]
    if setup.servers:
        parts.append(counted(setup.servers, "server"))
    return " · ".join(parts)


def _tiles(ranking: Sequence[Entry], unit: TimeUnit) -> list[Tile]:
    best = ranking[0].row
    above, worst = over_bound(best), worst_like(best, ranking)
    throughput = f"{best.throughput:.{decimals_for([best.throughput])}f} examples/s"
    level = num_level_with(best, ranking)
    field = f"of {counted(len(ranking), 'result')}" + (
        f", level with {counted(level, 'other')}" if level else ""
    )
    tiles = [
        Tile("Best policy", best.policy, field),
        Tile("Step time", time_text(best.iteration_s, unit), throughput),
    ]
    if above is not None:
        note = f"the bound is {time_text(best.bound_s, unit)}"
        tiles.append(Tile("Above the bound", f"{above:z.1%}", note))
    if worst is not best and best.iteration_s > 0:
        gain = worst.iteration_s / best.iteration_s - 1.0
        note = f"{worst.policy}: {time_text(worst.iteration_s, unit)}"
        tiles.append(Tile("Faster than the worst", f"{gain:z.1%}", note))
    note = f"overlap {best.overlap:.3f}, rho {best.rho:.3f}"
    tiles.append(Tile("Utilization", f"{best.utilization:.1%}", note))
    return tiles


def _panels(ranking: Sequence[Entry], unit: TimeUnit) -> list[Panel]:
    """The worst and the best result that have a timeline, in this order, each with its caption."""
    places = [place for place, entry in enumerate(ranking) if entry.timeline is not None]
    drawn = dict.fromkeys([places[-1], places[0]]) if places else {}
    return [
        Panel(_caption(place, ranking, unit), ranking[place].row.policy, timeline)
        for place in drawn
        if (timeline := ranking[place].timeline) is not None
    ]


def _caption(place: int, ranking: Sequence[Entry], unit: TimeUnit) -> str:
    row = ranking[place].row
    name = {len(ranking) - 1: "Worst", 0: "Best"}.get(place, "Place")
    return f"{name} ({place + 1} of {len(ranking)}): {row.policy}, mean {time_text(row.iteration_s, unit)}"
