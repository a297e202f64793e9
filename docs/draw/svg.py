"""Timelines, curves and boxes as SVG pictures that need nothing else, in the report pages' colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

KIND_COLOURS = {
    "forward": "#0072b2",
    "backward": "#d55e00",
    "update": "#b6559b",
    "parse": "#7a5230",
    "pull": "#74c0ec",
    "push": "#edb12e",
    "reduce": "#009e73",
}
SERIES_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#b6559b", "#b58900", "#3aa0d8", "#7a5230", "#6b7280"
)  # fmt: skip
_INK, _FAINT, _GRID = "#1a1f27", "#5b6573", "#e3e7ec"
_WIDTH, _MARGIN, _LABELS = 880, 16, 118
_LANE, _BAR, _CAPTION, _LEGEND, _AXIS = 20, 15, 26, 24, 30
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
_CHARACTER = 5.6  # pixels of a character in a bar, on average


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Something that ran from ``start_s`` to ``end_s``."""

    start_s: float
    end_s: float
    colour: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What one resource did."""

    label: str
    bars: Sequence[Bar]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lanes of one run; ``marks_s``: where steps end."""

    caption: str
    lanes: Sequence[Lane]
    marks_s: Sequence[float] = ()


def timelines(panels: Sequence[Panel], legend: Mapping[str, str]) -> str:
    """Panels below each other on one axis of time; ``legend``: what each colour means."""
    end_s = max(bar.end_s for panel in panels for lane in panel.lanes for bar in lane.bars)
    end_s = max([end_s, *(mark for panel in panels for mark in panel.marks_s)])
    left, right = _MARGIN + _LABELS, _WIDTH - _MARGIN
    heights = [_CAPTION + _LANE * len(panel.lanes) for panel in panels]
    height = _MARGIN + _LEGEND + sum(heights) + 8 * (len(panels) - 1) + _AXIS

    def x(seconds: float) -> float:
        return left + (right - left) * seconds / end_s

    parts = [_legend(legend)]
    top = _MARGIN + _LEGEND
    bottom = height - _AXIS
    for tick, text in _ticks(end_s, "s"):
        parts.append(_line(x(tick), top + _CAPTION, x(tick), bottom, _GRID))
        parts.append(_text(x(tick), bottom + 17, text, _FAINT, 11, "middle"))
    for panel, panel_height in zip(panels, heights, strict=True):
        parts.append(_text(_MARGIN, top + 17, panel.caption, _INK, 13, weight=600))
        parts += [
            _line(x(mark), top + _CAPTION - 3, x(mark), top + panel_height, _INK, "3 3")
            for mark in panel.marks_s
        ]
        for i, lane in enumerate(panel.lanes):
            y = top + _CAPTION + i * _LANE
            parts.append(_text(_MARGIN, y + 12, lane.label, _FAINT, 11))
            for bar in lane.bars:
                parts += _bar(x(bar.start_s), x(bar.end_s), y, bar)
        top += panel_height + 8
    return _document(height, parts)


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]], x_title: str, y_title: str, unit: str = ""
) -> str:
    """Lines through points (x, y), from (0, 0) on."""
    left, right, top, bottom = _MARGIN + 52, _WIDTH - _MARGIN, _MARGIN + _LEGEND, 330
    most_x = max(x for points in series.values() for x, _ in points)
    most_y = 1.05 * max(y for points in series.values() for _, y in points)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return left + (right - left) * point[0] / most_x, bottom - (bottom - top) * point[1] / most_y

    parts = [_legend(dict(zip(series, SERIES_COLOURS, strict=False)))]
    for tick, text in _ticks(most_y, unit):
        y = place((0.0, tick))[1]
        parts += [_line(left, y, right, y, _GRID), _text(left - 7, y + 4, text, _FAINT, 11, "end")]
    for tick, text in _ticks(most_x, ""):
        parts.append(_text(place((tick, 0.0))[0], bottom + 17, text, _FAINT, 11, "middle"))
    for points, colour in zip(series.values(), SERIES_COLOURS, strict=False):
        placed = " ".join(f"{px:.1f},{py:.1f}" for px, py in map(place, points))
        parts.append(f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts.append(_text((left + right) / 2, bottom + 36, x_title, _FAINT, 12, "middle"))
    parts.append(_text(_WIDTH - _MARGIN, _MARGIN + 12, y_title, _FAINT, 12, "end"))
    return _document(bottom + 48, parts)


def boxes(
    places: Mapping[str, tuple[float, int]],
    arrows: Sequence[tuple[str, str]],
    dashed: Sequence[tuple[str, str]] = (),
) -> str:
    """Boxes by name, each at its column from the middle and its row from the top, and lines from box to box.

    ``arrows`` lead down, ``dashed`` ones lead up.
    """
    width, height, column, row = 96.0, 26.0, 170.0, 62.0
    corners = {
        name: (_WIDTH / 2 + column * x - width / 2, _MARGIN + row * y) for name, (x, y) in places.items()
    }
    parts = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:g}" height="{height:g}" rx="5" fill="#ffffff"'
        f' stroke="{_INK}"/>'
        for x, y in corners.values()
    ]
    for i, (begin, end) in enumerate(arrows):
        x, y = corners[begin][0] + width / 2, corners[begin][1] + height
        x_end, y_end = corners[end][0] + width / 2, corners[end][1]
        bend = (y_end - y) / 2
        parts.append(
            f'<path d="M{x:.1f},{y:.1f} C{x:.1f},{y + bend:.1f} {x_end:.1f},{y_end - bend:.1f}'
            f' {x_end:.1f},{y_end:.1f}" fill="none" stroke="{SERIES_COLOURS[i % len(SERIES_COLOURS)]}"/>'
        )
    for begin, end in dashed:
        (x, y), (x_end, y_end) = corners[begin], corners[end]
        parts.append(_line(x + 0.75 * width, y, x_end + 0.75 * width, y_end + height, _FAINT, "3 3"))
    for name, (x, y) in corners.items():
        parts.append(_text(x + width / 2, y + 17, name, _INK, 12, "middle"))
    return _document(2 * _MARGIN + row * max(y for _, y in places.values()) + height, parts)


def _ticks(end: float, unit: str) -> list[tuple[float, str]]:
    """Round numbers from 0 to ``end``, some eight of them."""
    rough = end / 8
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    suffix = f" {unit}" if unit else ""
    return [(i * step, f"{i * step:.{decimals}f}{suffix}") for i in range(int(end / step) + 1)]


def _bar(x: float, end: float, y: float, bar: Bar) -> list[str]:
    width = max(end - x, 0.4)
    gap = 0.6 if width > 2 else 0.0
    drawn = (
        f'<rect x="{x:.2f}" y="{y}" width="{width - gap:.2f}" height="{_BAR}" fill="{bar.colour}">'
        f"<title>{escape(bar.name)}</title></rect>"
    )
    if not bar.name or len(bar.name) * _CHARACTER > width - 6:
        return [drawn]
    return [drawn, _text(x + width / 2, y + 11, bar.name, "#ffffff", 10, "middle")]


def _legend(entries: Mapping[str, str]) -> str:
    parts, x = [], float(_MARGIN)
    for name, colour in entries.items():
        parts.append(f'<rect x="{x:.1f}" y="{_MARGIN}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 17, _MARGIN + 10, name, _FAINT, 12))
        x += 17 + 6.6 * len(name) + 16
    return "".join(parts)


def _line(x: float, y: float, x_end: float, y_end: float, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x_end:.1f}" y2="{y_end:.1f}" stroke="{colour}"'
        f' stroke-dasharray="{dashes}"/>'
    )


def _text(
    x: float, y: float, text: str, colour: str, size: int, anchor: str = "start", weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )


def _document(height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}"'
        f' height="{height:g}" font-family="{_FONT}">'
        f'<rect width="100%" height="100%" rx="8" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )
