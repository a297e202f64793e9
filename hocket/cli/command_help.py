"""Help and usage errors of the command line: options in panels, the rare ones behind ``--help-all``."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from hocket.cli import printing
from hocket.cli.help_sections import described
from hocket.cli.help_text import help_text
from hocket.cli.panels import GENERAL, option
from hocket.text import listed

_PARSED = re.compile(", unable to parse string as an? .*")
_SEVERAL_WORKERS = re.compile(
    r"'--workers': '(?P<given>[\d\s]+[-,][-,\d\s]*)' (?:is not|should be) a valid int"
)
_OF_ONE_NUMBER = ("hocket tune", "hocket plan", "hocket simulate")
EXAMPLES = {
    "plan": "step.json --policy caramel -o plan.json",
    "predict": "step.json --workers 1-16",
    "tune": "step.json --workers 4",
    "simulate": "step.json --policy caramel",
    "profile": "resnet18 -o step.json",
    "rent": "resnet50_v1 --offers offers.csv --examples 115M",
    "train": "--nproc-per-node 2 train.py",
    "diagnose": "trace.json",
    "cluster simulate": "jobs.json --placement lwf-1 --policy ada-srsf",
}
"""Arguments to try a command with, for where some are missing."""
_NOT_ONE_OF = re.compile(r"'(?P<name>[^']*)' is not one of (?P<valid>.*)")


class ReaderGoneError(Exception):
    """The reader of the output (head, less) has left."""


def _show_all(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        print(help_text(*described(context, everything=True)))
        raise typer.Exit


def _be_quiet(asked: bool) -> None:
    if asked:
        printing.be_quiet()


def _be_verbose(asked: bool) -> None:
    if asked:
        printing.be_verbose()


Quiet = Annotated[
    bool,
    option(
        "--quiet",
        "-q",
        panel=GENERAL,
        help="Print the answer and errors: no table beside it, note or progress.",
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

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGoneError from None  # typer would make a failure of it

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(*described(ctx)))


class NamedCommand(TyperCommand):
    """A command by its name and the line that lists it, whose module is imported when it is used.

    ``place``: module and function, as in ``"commands.plan_command:plan"``; ``about``: the line, else the
    docstring's first sentence; ``cls``: the name of a class of that module, else :class:`Command`.
    """

    def __init__(self, name: str, place: str, about: str | None = None, *, cls: str | None = None) -> None:
        super().__init__(name, short_help=about)
        self.place, self._cls = place, cls

    @functools.cached_property
    def loaded(self) -> Any:
        """The command itself."""
        module_name, _, function = self.place.partition(":")
        module = importlib.import_module(f"hocket.cli.{module_name}")
        app = App(add_completion=False)
        app.command(self.name, cls=Command if self._cls is None else getattr(module, self._cls))(
            getattr(module, function)
        )
        return typer.main.get_command(app)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself, for its arguments."""
        return self.loaded.make_context(info_name, args, parent=parent, **extra)


class CommandGroup(TyperGroup):
    """A group of commands, whose name alone is answered with its help."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, as far as it takes to run or to list it."""
        command = super().get_command(ctx, cmd_name)
        return command.loaded if isinstance(command, NamedCommand) and not command.short_help else command

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
        print(help_text(*described(ctx)))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(*described(ctx)))


class App(typer.Typer):
    """An application whose commands are :class:`Command` and whose groups are :class:`CommandGroup`."""

    def __init__(self, *, cls: type[CommandGroup] = CommandGroup, **settings: Any) -> None:
        super().__init__(cls=cls, pretty_exceptions_enable=False, **settings)

    def command(self, name: str | None = None, *, cls: type[Any] = Command, **settings: Any) -> Any:  # type: ignore[override]
        """Register a function as a command, as :meth:`typer.Typer.command` does."""
        register = super().command(name, cls=cls, **settings)

        def registered(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_with_more(function, {**getattr(cls, "more_options", {}), **_COMMON}))
            return function

        return registered


def _missing(context: Any) -> str:
    """The arguments and the options that a command has to have, of those that its line has not."""
    lacking = [param for param in context.command.params if param.required]
    # Those that are there are read before the first one that is missing ends that.
    lacking = [param for param in lacking if context.params.get(param.name) is None]
    arguments = [f"'{param.metavar or param.name.upper()}'" for param in lacking if not _is_option(param)]
    options = [f"'{max(param.opts, key=len)}'" for param in lacking if _is_option(param)]
    return listed(
        [
            f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}"
            for kind, names in (("argument", arguments), ("option", options))
            if names
        ]
    )


def _is_option(param: Any) -> bool:
    return bool(param.param_type_name == "option")


def usage_error(error: Any) -> str:
    """The error of a command line, the nearest valid name, and the command that explains its options."""
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    reasons = getattr(error.__cause__, "errors", None)  # pydantic's, whose message does not name the value
    if reasons is not None:
        message = _PARSED.sub("", message.replace("Input should", f"'{reasons()[0]['input']}' should"))
    unknown = _NOT_ONE_OF.search(message)
    if unknown is not None:
        valid = [name.strip(" '") for name in unknown["valid"].split(",")]
        near = difflib.get_close_matches(unknown["name"].casefold(), valid, n=1)
        message += f"; did you mean '{near[0]}'?" if near else ""
    context = getattr(error, "ctx", None)
    path = "hocket" if context is None else context.command_path
    example = EXAMPLES.get(path.removeprefix("hocket "))
    if message.startswith("Missing ") and context is not None:
        message = (
            f"Missing {_missing(context)}{'' if example is None else f'; for example: {path} {example}'}"
        )
    several = _SEVERAL_WORKERS.search(message)
    if several is not None and path in _OF_ONE_NUMBER:
        return (
            f"--workers {several['given']}: '{path}' takes one number; for several: hocket predict STEP"
            f" --workers {several['given']}"
        )
    return f"{message}{'' if message.endswith('?') else '.'} See '{path} --help'."
