"""Groups of options: declared once, as fields of a frozen dataclass, and taken by a command as one parameter.

A command overrides a field's default or help by a subclass of the group. Fields of several bases stand as in
any dataclass: those of the last base first.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from typer.models import OptionInfo

_Result = TypeVar("_Result")


def grouped(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """A function with an option for each field of ``command``'s groups, which makes the groups and calls it.

    Typer reads the signature that it has, so that ``context.params`` is flat.

    Raises
    ------
    TypeError
        When two parameters, of groups or of the command itself, have one name or one option.
    """
    parameters = list(_flat(command))
    _check_apart(command.__name__, parameters)

    @functools.wraps(command)
    def called(**values: Any) -> _Result:
        return command(**_arguments(command, values))

    annotations = {each.name: each.annotation for each in parameters}
    called.__annotations__ = {**annotations, "return": get_type_hints(command).get("return")}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def _parameters(declared: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a command, or the fields of a group, with annotations that are no texts."""
    hints = get_type_hints(declared, include_extras=True)
    # By keyword, since one without a default may follow on a group's that have defaults.
    return [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(declared).parameters.values()
    ]


def _is_group(annotation: Any) -> bool:
    return is_dataclass(annotation)


def _flat(command: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for each in _parameters(command):
        if _is_group(each.annotation):
            yield from _parameters(each.annotation)
        else:
            yield each


def _arguments(command: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``command``: ``values``, those of a group in an object of it."""
    arguments = dict(values)
    for each in _parameters(command):
        if _is_group(each.annotation):
            own = {field.name: arguments.pop(field.name) for field in _parameters(each.annotation)}
            arguments[each.name] = each.annotation(**own)
    return arguments


def _check_apart(command: str, parameters: list[inspect.Parameter]) -> None:
    """Refuse two parameters with one name, or with one option."""
    seen: set[str] = set()
    for parameter in parameters:
        for name in {parameter.name, *_spellings(parameter)}:
            if name in seen:
                raise TypeError(f"the command {command} declares {name} twice; leave it out of one group")
            seen.add(name)


def _spellings(parameter: inspect.Parameter) -> list[str]:
    """The options of a parameter, as they are given."""
    for info in get_args(parameter.annotation)[1:]:
        if isinstance(info, OptionInfo):
            # In an annotation, typer keeps the first name as the default.
            named = [] if info.default is ... else [str(info.default), *(info.param_decls or ())]
            return named or [f"--{parameter.name.replace('_', '-')}"]
    return []
