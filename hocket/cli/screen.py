"""The screen of a command that answers: a sentence, its assumptions, a table, and the next command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from hocket.cli.answer_settings import is_given
from hocket.cli.printing import is_quiet, print_table, width
from hocket.document import check_output

if TYPE_CHECKING:
    from hocket.columns import Column

NETWORK_OPTIONS = (
    *("network_file", "bandwidth", "latency", "parse_alpha", "parse_beta", "pattern"),
    *("cluster", "gpus_per_node", "intra_bandwidth", "nics_per_node", "intra_latency", "in_switch"),
    "machines_per_rack",
)
"""Parameters that describe a network, which the next command is to have as well."""

MORE = "--wide shows all columns"


class Sheet(NamedTuple):
    """One table: its title (or nothing), its columns, and which rows stand out."""

    title: str
    columns: Sequence[Column]
    bold: Sequence[bool] = ()


def show(
    answers: Sequence[str],
    *,
    assumptions: str = "",
    sheets: Sequence[Sheet] = (),
    remarks: Sequence[str] = (),
    notes: Sequence[str] = (),
    following: str = "",
) -> None:
    """Print the answers and, unless ``-q`` asks for them alone, all that they rest on.

    ``remarks`` stand below the tables, behind what their headings mean, and ``notes``, to which an answer
    refers, below them. A terminal gets the columns that fit.
    """
    from hocket.columns import fitting, legend, terminal_table

    check_output()
    print("\n".join(map(as_sentence, answers)))
    if is_quiet():
        return
    if assumptions:
        print(assumptions)
    explained: dict[str, Column] = {}
    missing: dict[str, None] = {}
    for sheet in sheets:
        if sheet.title:
            print(sheet.title)
        kept = fitting(sheet.columns, width(sys.stdout))
        print_table(terminal_table(kept, sheet.bold))
        explained.update({column.meaning: column for column in kept if column.needs_word})
        missing.update(dict.fromkeys(column.title for column in sheet.columns if column not in kept))
    lines = [legend(list(explained.values())), *map(as_sentence, remarks)]
    if missing:
        lines.append(f"Not shown for want of width: {', '.join(missing)}.")
    if said := " ".join(line for line in lines if line):
        print(said)
    for note in notes:
        print(f"Note: {as_sentence(note)}")
    if following:
        print(f"Next: {following}")


def command_line(
    context: typer.Context, *words: str, like: Iterable[str] = NETWORK_OPTIONS, **options: Any
) -> str:
    """A command to type: ``words``, ``options``, and those of ``like`` that stand on this command line.

    An option that is None is left out, also where this command line has it.
    """
    given = {
        name: context.params[name] for name in like if name in context.params and is_given(context, name)
    }
    if "machines_per_rack" in given and is_given(context, "oversubscription"):
        given["oversubscription"] = context.params["oversubscription"]
    found = list(words)
    for name, value in {**given, **options}.items():
        if value is not None:
            flag = "network" if name == "network_file" else name.replace("_", "-")
            found += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return shlex.join(found)


def as_sentence(text: str) -> str:
    """``text`` with a period; a name that it begins with stays as it is written."""
    return text if text.endswith((".", ":")) else f"{text}."
