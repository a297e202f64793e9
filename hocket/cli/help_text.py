"""A help text at the width of the terminal: sections of rows, each a name and what it means."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from typing import NamedTuple

_WIDEST, _NAMES = 100, 26
NO_BREAK = "\xa0"


class HelpRow(NamedTuple):
    """A line of a section: a name with its value, and what it means."""

    name: str
    text: str


class Section(NamedTuple):
    """Rows under a title."""

    title: str
    rows: list[HelpRow]


def help_text(usage: str, about: str, sections: list[Section], below: list[str]) -> str:
    """A help text without its last line's end; titles and names stand out on a terminal."""
    from rich.console import Console
    from rich.text import Text

    width = width_of_help()
    usage = " ".join(usage.split())
    text = Text(textwrap.fill(usage, width, subsequent_indent="  ", break_on_hyphens=False) + "\n")
    for paragraph in about.split("\n\n"):
        text.append("\n" + textwrap.fill(" ".join(paragraph.split()), width) + "\n")
    longest = max((len(row.name) for section in sections for row in section.rows), default=0)
    column = min(longest, _NAMES, width // 3)
    for section in sections:
        text.append(f"\n{section.title}\n", "bold")
        for row in section.rows:
            _append(text, row, column, width)
    if below:
        text.append("\n")
    for line in below:
        text.append(textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) + "\n")
    text.rstrip()
    written = io.StringIO()
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(file=written, width=width, force_terminal=is_terminal or None)
    console.print(text, end="", soft_wrap=True)
    return written.getvalue()


def width_of_help() -> int:
    """Columns of a help text: the terminal's (COLUMNS), as far as lines can be read."""
    return max(40, min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST))


def _append(text: object, row: HelpRow, column: int, width: int) -> None:
    from rich.text import Text

    assert isinstance(text, Text)
    wrapped = textwrap.wrap(row.text, width - column - 4, break_on_hyphens=False) or [""]
    lines = [line.replace(NO_BREAK, " ") for line in wrapped]
    if len(row.name) > column:
        text.append(f"  {row.name}\n", "cyan")
    else:
        text.append(f"  {row.name:<{column}}", "cyan")
        text.append(f"  {lines.pop(0)}".rstrip() + "\n")
    for line in lines:
        text.append(f"{'':{column + 4}}{line}\n")
