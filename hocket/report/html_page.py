"""One HTML page that needs nothing else: scripts, styles and figures inline, and no network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jinja2

from hocket.origin import Origin, origin
from hocket.report.packed import pack_json, pack_plotly

_LONG_WORD = 11  # letters


class Tile(NamedTuple):
    """One of the figures that the page opens with."""

    label: str
    figure: str
    note: str

    @property
    def is_long(self) -> bool:
        """True if a word of the figure is wider than a tile at the usual size."""
        return max(map(len, self.figure.split()), default=0) > _LONG_WORD


def render_page(
    template: str,
    data: Any,
    *,
    made: Origin | None = None,
    origins: Iterable[Origin | None] = (),
    **variables: Any,
) -> str:
    """A page of this folder's ``template``, with ``data`` for its scripts and plotly packed into it.

    Its header names the command and the date of the page, ``made`` or this process's own, and those of its
    results, ``origins``.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hocket.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    made = made or origin()
    sources = [
        source for source in dict.fromkeys(origins) if source is not None and source.command != made.command
    ]
    return environment.get_template(template).render(
        **variables, made=made, sources=sources, data=pack_json(data), plotly=pack_plotly()
    )


def network_line(origins: Iterable[Origin | None]) -> str:
    """The network that all results with ``origins`` hold for, how many there are, or that none is known."""
    networks = dict.fromkeys(source.network for source in origins if source is not None and source.network)
    if len(networks) == 1:
        return next(iter(networks))
    return f"{len(networks)} networks" if networks else "network not recorded"
