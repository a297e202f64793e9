"""A reproduction: claims beside ours, figures and tables as plain data, and its assumptions."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from hocket.reproduce.claim import ClaimRow

REPRODUCTION_FORMAT: Final = "hocket.reproduction/1"

Cell = str | int | float | None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line, set of points or bars; ``x`` are numbers or names, ``y`` may have gaps."""

    name: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    kind: Literal["line", "points", "bars"] = "line"
    base: tuple[float, ...] | None = None
    """Where bars along the x axis begin; ``x`` are their lengths, ``y`` the numbers of their lanes."""


class PlotAxes(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of axes."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    stacked: bool = False
    lanes: tuple[str, ...] = ()
    """The names of lanes of bars along the x axis."""


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the paper, redrawn from what was found here."""

    number: str
    caption: str
    panels: tuple[PlotAxes, ...]


class PaperTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the paper beside ours; each of ``rows`` has a cell for each of ``columns``."""

    number: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that cannot be made here: why, and what stands in its place."""

    number: str
    why: str
    instead: str


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """One paper: ``claims`` in the order of its figures; ``assumptions`` are sentences."""

    paper: str
    title: str
    assumptions: tuple[str, ...]
    claims: tuple[ClaimRow, ...]
    tables: tuple[PaperTable, ...]
    figures: tuple[PaperFigure, ...]
    missing: tuple[Missing, ...] = ()
    wall_s: float = 0.0


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """Under which command, versions and hardware a reproduction was made.

    ``load``: how many processes, its own included, wanted a processor in the last 15 minutes, on average.
    """

    command: str
    hardware: str
    load: float
    versions: str
    date: str
    seed: int
    quick: bool


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one paper."""

    format: Literal["hocket.reproduction/1"] = REPRODUCTION_FORMAT
    circumstances: Circumstances
    reproduction: Reproduction
