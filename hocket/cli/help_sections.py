"""Sections of a command's help, from its parameters: panels, defaults, units, and a count of the rare."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup

from hocket.cli.help_text import NO_BREAK, HelpRow, Section
from hocket.cli.panels import GENERAL, ORDER

_SHORT = 24  # of a default that stays on its line
_UNITS = {
    "RATE": "RATE: 10Gbit/s or 1.25GB/s",
    "TIME": "TIME: 50us, 1.5s",
    "SIZE": "SIZE: 64MB, 4MiB",
}


def described(context: Any, everything: bool = False) -> tuple[str, str, list[Section], list[str]]:
    """The usage line of a command, what it does, its sections and what stands below them."""
    command = context.command
    # Installing completion does all of it; who reads the list of all commands, under 40 lines, knows --help.
    known = {"show_completion", "help"} if context.parent is None else {"show_completion"}
    parameters = [p for p in command.get_params(context) if p.name not in known]
    rare = [p for p in parameters if getattr(p, "hidden", False)]
    left_out = rare if rare and not everything else [p for p in parameters if p.name == "help_all"]
    shown = [p for p in parameters if p not in left_out]
    sections = _panels(shown)
    if isinstance(command, TyperGroup):
        sections = [*_commands(context, command), *sections]
    below = [line.strip() for line in (command.epilog or "").splitlines() if line.strip()]
    values = " ".join(_value(parameter) for parameter in shown)
    units = [text for unit, text in _UNITS.items() if unit in values.split()]
    if units:
        below.append(f"Units: {'; '.join(units)} (B is bytes, bit is bits).")
    if rare and not everything:
        more = "1 more option" if len(rare) == 1 else f"{len(rare)} more options"
        below.append(f"{more}, for special cases: {context.command_path} --help-all")
    return _usage(context), inspect.cleandoc(command.help or ""), sections, below


def _usage(context: Any) -> str:
    pieces = [context.command_path, "[OPTIONS]"]
    if isinstance(context.command, TyperGroup):
        pieces.append("COMMAND")
    arguments = [p for p in context.command.get_params(context) if p.param_type_name == "argument"]
    pieces += [_value(p) if p.required else f"[{_value(p)}]" for p in arguments]
    return f"Usage: {' '.join(pieces)}"


def _panels(parameters: list[Any]) -> list[Section]:
    panels: dict[str, list[HelpRow]] = {}
    for parameter in parameters:
        is_argument = parameter.param_type_name == "argument"
        usual = "Arguments" if is_argument else GENERAL
        name = parameter.rich_help_panel or usual if hasattr(parameter, "rich_help_panel") else usual
        panels.setdefault(name, []).append(_row(parameter))
    order = [name for name in panels if name not in ORDER] + [name for name in ORDER if name in panels]
    return [Section(name, panels[name]) for name in order]


def _row(parameter: Any) -> HelpRow:
    value = _value(parameter)
    if parameter.param_type_name == "argument":
        return HelpRow(value, _explained(parameter))
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.secondary_opts:
        names += f"/{parameter.secondary_opts[0]}"
    return HelpRow(f"{names} {value}".rstrip(), _explained(parameter))


def _explained(parameter: Any) -> str:
    default, shown = parameter.default, parameter.show_default
    if parameter.required:
        about = "[required]" if parameter.param_type_name == "option" else ""
    elif isinstance(shown, str):
        about = f"[default: {shown}]"
    elif shown and default is not None and default is not False and not callable(default):
        about = f"[default: {default}]"
    else:
        about = ""
    if len(about) < _SHORT:
        about = about.replace(" ", NO_BREAK)
    return f"{parameter.help or ''} {about}".strip()


def _value(parameter: Any) -> str:
    """The name of an option's value; nothing for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar is not None:
        return str(parameter.metavar)
    kind = getattr(parameter, "type_descriptor", None) or parameter.type
    choices = getattr(kind, "choices", None)
    if choices:
        return "|".join(map(str, choices))
    usual: dict[Any, str] = {int: "N", float: "X"}
    return usual.get(getattr(kind, "annotation", None), str(parameter.name).upper())


def _commands(context: Any, group: Any) -> list[Section]:
    panels: dict[str, list[HelpRow]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        first = inspect.cleandoc(command.short_help or command.help or "").split("\n\n")[0]
        panels.setdefault(command.rich_help_panel or "Commands", []).append(
            HelpRow(name, " ".join(first.split()))
        )
    return [Section(name, rows) for name, rows in panels.items()]
