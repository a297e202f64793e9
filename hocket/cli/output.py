"""Printing: results on standard output, progress and notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hocket.document import check_output, encode, write_output


def print_json(document: Any) -> None:
    """Print exactly one JSON document, in UTF-8 whatever the locale."""
    write_output(encode(document) + b"\n")


def print_table(table: Any) -> None:
    """Print a rich table at the width of the terminal; a file or a pipe gets all of its columns."""
    from rich.console import Console

    check_output()
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def note_table(table: Any) -> None:
    """Print a rich table beside the result, on standard error."""
    from rich.console import Console

    Console(stderr=True, width=None if sys.stderr.isatty() else 160).print(table)


def note(text: str) -> None:
    """Tell the user something beside the result."""
    print(text, file=sys.stderr)


@contextmanager
def progress(description: str) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error; the callback takes what is done, what there is, and a new description."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total, what=description: bar.update(
            task, completed=done, total=total, description=what
        )
