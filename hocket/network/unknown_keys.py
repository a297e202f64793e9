"""Keys of a file that its format has not: ignored, and named."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec

_SHOWN, _LONGEST = 5, 60  # how many are named, and how much of each


def say_ignored(
    plain: dict[str, Any],
    document: type[msgspec.Struct],
    path: str,
    format_name: str,
    note: Callable[[str], None] | None,
) -> None:
    """Name the keys of ``plain`` that ``document`` has not: to ``note``, by default in a warning."""
    ignored = list(_unknown_keys(plain, document, ""))
    if not ignored:
        return
    more = f", and {len(ignored) - _SHOWN} more" if len(ignored) > _SHOWN else ""
    which = f"{', '.join(ignored[:_SHOWN])}{more} {'is' if len(ignored) == 1 else 'are'} ignored"
    line = f"{path}: {which}; {format_name} has {', '.join(document.__struct_fields__)}"
    if note is None:
        warnings.warn(line, stacklevel=3)
    else:
        note(line)


def _unknown_keys(value: dict[str, Any], of: type[msgspec.Struct], place: str) -> Iterator[str]:
    """Each key in ``value`` that ``of`` has not, with its place and the one that was probably meant."""
    fields = {field.name: field.type for field in msgspec.structs.fields(of)}
    for key, inner in value.items():
        if key not in fields:
            name = repr(place + key)[:_LONGEST]
            near = difflib.get_close_matches(key[:_LONGEST], list(fields), n=1)
            yield f"{name} (did you mean '{near[0]}'?)" if near else name
            continue
        of_key = (fields[key], *get_args(fields[key]))
        for nested in (type_ for type_ in of_key if hasattr(type_, "__struct_fields__")):
            for item in inner if isinstance(inner, list) else [inner] if isinstance(inner, dict) else []:
                yield from _unknown_keys(item, nested, f"{place}{key}.")
