"""Help and usage errors of the command line: options in panels, the rare ones behind ``--help-all``."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from hocket.cli import output
from hocket.cli.help_text import NO_BREAK, Row, Section, help_text

PLANNING, WORKERS, NETWORK = "Planning", "Workers and servers", "Network"
PROFILE, SIMULATION, OUTPUT, GENERAL = "Profile", "Simulation", "Output", "General"
BENCHMARK, JOBS, MACHINES = "Benchmark", "Jobs", "Machines"
SCHEDULING, MANAGER = "Placement and policy", "Manager"
SERVERS, PROCESSES = "Parameter servers (--architecture ps)", "Processes (torchrun's)"
_ORDER = (
    *(JOBS, SCHEDULING, MACHINES, MANAGER, BENCHMARK),
    *(PROFILE, PLANNING, PROCESSES, WORKERS, SERVERS, NETWORK, SIMULATION, OUTPUT, GENERAL),
)

_NOT_ONE_OF = re.compile(r"'(?P<name>[^']*)' is not one of (?P<valid>.*)")
_SHORT = 24  # of a default that stays on its line
_UNITS = {
    "RATE": "RATE: 10Gbit/s or 1.25GB/s",
    "TIME": "TIME: 50us, 1.5s",
    "SIZE": "SIZE: 64MB, 4MiB",
}


def option(*names: str, panel: str, rare: bool = False, **more: Any) -> Any:
    """An option of a command, in one panel of its help; choices are taken in any case.

    ``rare``: listed by ``--help-all`` only; ``more``: as :func:`typer.Option` takes it.
    """
    return typer.Option(*names, rich_help_panel=panel, hidden=rare, case_sensitive=False, **more)


def _show_all(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        print(help_text(*_described(context, everything=True)))
        raise typer.Exit


def _be_quiet(asked: bool) -> None:
    if asked:
        output.be_quiet()


def _be_verbose(asked: bool) -> None:
    if asked:
        output.be_verbose()


Quiet = Annotated[
    bool,
    option(
        "--quiet",
        "-q",
        panel=GENERAL,
        help="Print the result and errors, nothing else.",
        callback=_be_quiet,
        expose_value=False,
    ),
]
Verbose = Annotated[
    bool,
    option(
        "--verbose",
        "-v",
        panel=GENERAL,
        help="Log what goes on, and show where an error comes from.",
        callback=_be_verbose,
        expose_value=False,
    ),
]
_HelpAll = Annotated[
    bool,
    option(
        "--help-all",
        panel=GENERAL,
        help="Show the rare options too.",
        callback=_show_all,
        expose_value=False,
        is_eager=True,
    ),
]
_COMMON = {"quiet": Quiet, "verbose": Verbose, "help_all": _HelpAll}


def _with_more(function: Callable[..., Any], more: Mapping[str, Any]) -> Callable[..., Any]:
    """``function`` as a command that has ``more`` options, none of which it is given."""
    own = inspect.signature(function, eval_str=True)  # typer evaluates those of the function alone
    added = {name: kind for name, kind in more.items() if name not in own.parameters}

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        return function(**{name: value for name, value in values.items() if name not in added})

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in added.items()
    ]
    command.__signature__ = own.replace(parameters=[*own.parameters.values(), *parameters])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, **added}
    return command


class Command(TyperCommand):
    """A command whose help has panels, and names the rare options on request.

    ``more_options``: annotated options of a class's own, whose values no function is given.
    """

    more_options: ClassVar[Mapping[str, Any]] = {}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(*_described(ctx)))


class Group(TyperGroup):
    """A group of commands, whose name alone is answered with its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; without a command, show what there is.

        The status is then 0: nothing was asked for that could not be served, and the answer is the help that
        ``--help`` gives.
        """
        if not args and not ctx.resilient_parsing:
            self.show(ctx)
            ctx.exit()
        return super().parse_args(ctx, args)

    def show(self, ctx: Any) -> None:
        """Print what the name alone is answered with."""
        print(help_text(*_described(ctx)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(*_described(ctx)))


class App(typer.Typer):
    """An application whose commands are :class:`Command` and whose groups are :class:`Group`."""

    def __init__(self, *, cls: type[Group] = Group, **settings: Any) -> None:
        super().__init__(cls=cls, pretty_exceptions_enable=False, **settings)

    def command(self, name: str | None = None, *, cls: type[Any] = Command, **settings: Any) -> Any:  # type: ignore[override]
        """Register a function as a command, as :meth:`typer.Typer.command` does."""
        register = super().command(name, cls=cls, **settings)

        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_with_more(function, {**getattr(cls, "more_options", {}), **_COMMON}))
            return function

        return registered


def _described(context: Any, everything: bool = False) -> tuple[str, str, list[Section], list[str]]:
    """The usage line of a command, what it does, its sections and what stands below them."""
    command = context.command
    parameters = [p for p in command.get_params(context) if p.name != "show_completion"]  # install does all
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
    panels: dict[str, list[Row]] = {}
    for parameter in parameters:
        is_argument = parameter.param_type_name == "argument"
        usual = "Arguments" if is_argument else GENERAL
        name = parameter.rich_help_panel or usual if hasattr(parameter, "rich_help_panel") else usual
        panels.setdefault(name, []).append(_row(parameter))
    order = [name for name in panels if name not in _ORDER] + [name for name in _ORDER if name in panels]
    return [Section(name, panels[name]) for name in order]


def _row(parameter: Any) -> Row:
    value = _value(parameter)
    if parameter.param_type_name == "argument":
        return Row(value, _explained(parameter))
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.secondary_opts:
        names += f"/{parameter.secondary_opts[0]}"
    return Row(f"{names} {value}".rstrip(), _explained(parameter))


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
    """What stands behind an option's name: nothing behind a flag's."""
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
    panels: dict[str, list[Row]] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        first = inspect.cleandoc(command.short_help or command.help or "").split("\n\n")[0]
        panels.setdefault(command.rich_help_panel or "Commands", []).append(
            Row(name, " ".join(first.split()))
        )
    return [Section(name, rows) for name, rows in panels.items()]


def usage_error(error: Any) -> str:
    """What is wrong with a command line, the nearest valid name, and where its options are explained."""
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    unknown = _NOT_ONE_OF.search(message)
    if unknown is not None:
        valid = [name.strip(" '") for name in unknown["valid"].split(",")]
        near = difflib.get_close_matches(unknown["name"].casefold(), valid, n=1)
        message += f"; did you mean '{near[0]}'?" if near else ""
    context = getattr(error, "ctx", None)
    path = "hocket" if context is None else context.command_path
    return f"{message}{'' if message.endswith('?') else '.'} See '{path} --help'."
