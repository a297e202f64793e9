"""Objects as a terminal, a notebook and pandas show them: a headline and a few lines, rows as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hocket.errors import HocketError, one_line

_LONGEST = 140  # characters of a headline, and of a line's text
_MOST_LINES = 6


class ObjectSummary(NamedTuple):
    """A headline, and lines of a label and a text each."""

    headline: str
    lines: Sequence[tuple[str, str]]


class Summarized:
    """Gives an object a short ``repr``, and the same as a table in notebooks.

    A damaged object is shown, too: with the error that its summary raised.
    """

    __slots__ = ()

    def _summary(self) -> ObjectSummary:
        raise NotImplementedError

    def __repr__(self) -> str:
        headline, lines = _shown(self)
        width = max((len(label) for label, _ in lines), default=0)
        return "\n".join([headline, *(f"  {label:{width}}  {text}" for label, text in lines)])

    def _repr_html_(self) -> str:
        # Without colours of its own it is as readable on a dark page as on a light one.
        headline, lines = _shown(self)
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(label)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for label, text in lines
        )
        caption = f'<caption style="text-align:left">{html.escape(headline)}</caption>'
        return f"<table>{caption}<tbody>{rows}</tbody></table>"

    def __rich_repr__(self, /) -> list[tuple[str, Any]]:
        return list(_shown(self).lines)


def _shown(of: Summarized) -> ObjectSummary:
    """The summary of an object, each part in one line that fits a terminal."""
    try:
        headline, lines = of._summary()
        shown = [(_cut(label), _cut(text)) for label, text in lines[:_MOST_LINES]]
        return ObjectSummary(_cut(headline), shown)
    except Exception as error:  # a debugger or a traceback shows objects that are half made
        return ObjectSummary(f"{type(of).__name__}, damaged: {_cut(f'{type(error).__name__}: {error}')}", [])


def _cut(text: str) -> str:
    line = one_line(text[: 2 * _LONGEST])
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 4]} ..."


def data_frame(rows: Iterable[dict[str, Any]]) -> Any:
    """A pandas DataFrame with a row for each of ``rows``.

    Raises
    ------
    HocketError
        When pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise HocketError("pandas is not installed; pip install pandas") from None
    return pandas.DataFrame(list(rows))
