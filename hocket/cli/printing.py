"""Printing: results on standard output, progress and notes on standard error."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from hocket.document import check_output, encode, write_output
from hocket.logs import VARIABLE, show_log
from hocket.text import time_unit

if TYPE_CHECKING:
    from rich.console import Console

_FIRST_LINE_S, _WAITED_S, _LINE_S = 1.0, 5.0, 10.0
_GLANCE_S = 0.2
_ENDS = re.compile(r"(?: |\x1b\[[0-9;]*m)+$", re.MULTILINE)  # spaces, and styles between them
_COMPILING = "compiling, once on this machine, for about a minute"
_UNBROKEN = 10_000  # the width of lines that nothing breaks


class _Amount:
    """The amount that one command says beside its results; ``main`` begins it and options change it."""

    quiet = False
    verbose = False
    at_end: ClassVar[list[str]] = []


def reset_verbosity() -> None:
    """Begin a command: notes and progress are printed, where an error comes from is not."""
    _Amount.quiet, _Amount.verbose = False, bool(os.environ.get("HOCKET_DEBUG"))
    _Amount.at_end.clear()


def be_quiet() -> None:
    """Print results and errors alone."""
    _Amount.quiet = True


def is_quiet() -> bool:
    """Tell whether ``-q`` asks for results and errors alone."""
    return _Amount.quiet


def be_verbose() -> None:
    """Log phases, here and in processes that are started, and say where errors come from."""
    _Amount.verbose = True
    os.environ.setdefault(VARIABLE, "info")
    show_log()


def is_verbose() -> bool:
    """Tell whether errors are to say where they come from: ``-v``, or HOCKET_DEBUG in the environment."""
    return _Amount.verbose


def print_json(document: Any) -> None:
    """Print exactly one JSON document, in UTF-8 whatever the locale."""
    write_output(encode(document) + b"\n")


def print_table(table: Any) -> None:
    """Print a rich table at the width of the terminal (COLUMNS); a file or a pipe gets all of its columns."""
    from rich.console import Console

    check_output()
    console = Console(width=width(sys.stdout))
    print(_printed(console, table), end="")  # of a reader that has left, rich itself would make a failure


def note_table(table: Any) -> None:
    """Print a rich table beside the result, on standard error."""
    from rich.console import Console

    if not _Amount.quiet:
        print(_printed(Console(stderr=True, width=width(sys.stderr)), table), end="", file=sys.stderr)


def _printed(console: Console, table: Any) -> str:
    """The text that ``console`` makes of a table, without spaces at the ends of lines."""
    console.file.flush()  # rich, which flushes it too, would end the process where its reader has left
    with console.capture() as captured:
        console.print(table)
    return _ENDS.sub(lambda end: end[0].replace(" ", ""), captured.get())


def width(stream: TextIO) -> int:
    """Columns of a table: the terminal's, or COLUMNS; of a file or a pipe so many that no line breaks."""
    from rich.console import Console

    return Console().width if stream.isatty() or "COLUMNS" in os.environ else _UNBROKEN


def note(text: str) -> None:
    """Tell the user something beside the result, unless ``-q`` asks for silence."""
    if not _Amount.quiet:
        print(text, file=sys.stderr)


def note_at_end(text: str) -> None:
    """Keep a note until :func:`print_end`, for what holds only where the command comes to its end."""
    _Amount.at_end.append(text)


def print_end() -> None:
    """Print the notes that were kept: the command has done what it was asked for."""
    for text in _Amount.at_end:
        note(text)
    _Amount.at_end.clear()


def warn(text: str) -> None:
    """Tell the user why the result may be wrong, also where ``-q`` asks for silence."""
    print(text, file=sys.stderr)


@contextmanager
def progress(description: str, *, is_even: bool = True) -> Iterator[Callable[..., None]]:
    """Say on standard error how far what takes long is: a bar on a terminal, else a line now and then.

    The callback takes what is done, what there is in all, and a new description. Lines come after a second
    of computing and then every ten, with the time left by what has been done so far if the parts of the work
    take about as long as each other, as ``is_even`` says.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Compiling(ProgressColumn):
        """A word on why nothing moves, as long as kernels are compiled."""

        def render(self, task: Task) -> Text:
            return Text(_COMPILING if _compiles() else "")

    if _Amount.quiet:
        yield lambda *_: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        with _lines(_Done(description, is_even)) as tell:
            yield tell
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        *((TextColumn("left"), TimeRemainingColumn()) if is_even else ()),
        Compiling(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total, what=description: bar.update(
            task, completed=done, total=total, description=what
        )


class _Done:
    """The progress of something, for the thread that tells it; ``is_even`` as :func:`progress` has it."""

    def __init__(self, description: str, is_even: bool) -> None:
        self._is_even = is_even
        self.began_s, self._computed_s = time.monotonic(), time.process_time()
        self.done, self.total, self.description = 0.0, 0.0, description
        self._moved_s = self.began_s

    def tell(self, done: float, total: float, description: str | None = None) -> None:
        if done != self.done or total != self.total:
            self._moved_s = time.monotonic()
        self.done, self.total = done, total
        self.description = description or self.description

    def is_long(self) -> bool:
        """Tell whether it has computed for long, or waited for longer: a busy machine alone is no news."""
        computed_s = time.process_time() - self._computed_s
        return computed_s >= _FIRST_LINE_S or time.monotonic() - self.began_s >= _WAITED_S

    def line(self) -> str:
        """The work done and, unless it is uneven or overdue, the time left by its pace so far."""
        gone_s = time.monotonic() - self.began_s
        line = f"{self.description}: {gone_s:.0f} s"
        if 0 < self.done <= self.total:
            line += f", {self.done / self.total:.0%}"
            left_s = (self._moved_s - self.began_s) * self.total / self.done - gone_s
            if self._is_even and left_s > 0 and not _compiles():
                line += f", about {_roughly(left_s)} left"
        return f"{line}; {_COMPILING}" if _compiles() else line


def _compiles() -> bool:
    """Tell whether a kernel is being compiled, without loading what compiles them."""
    compiler = sys.modules.get("hocket.kernel")
    return compiler is not None and compiler.is_compiling()


def _roughly(seconds: float) -> str:
    """A duration to two digits, in the unit that fits."""
    unit = time_unit([seconds])
    return f"{float(f'{seconds * unit.per_second:.2g}'):g} {unit.symbol}"


@contextmanager
def _lines(at: _Done) -> Iterator[Callable[..., None]]:
    """The callback of :func:`progress`, whose lines a thread prints as long as the block runs."""
    over = threading.Event()

    def say() -> None:
        while not at.is_long():
            if over.wait(_GLANCE_S):
                return
        note(at.line())
        while not over.wait(_LINE_S):
            note(at.line())

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield at.tell
    finally:
        over.set()
        thread.join()
