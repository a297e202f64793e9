"""What a script wants to train by: a plan, the path of a plan's file, or the name of a policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import Plan, load_plan

Wanted: TypeAlias = str | os.PathLike[str] | Plan


def resolved(wanted: Wanted, names: Sequence[str]) -> tuple[Plan | None, str]:
    """The plan that is given, or that a file holds, and else which of ``names`` it is.

    Raises
    ------
    FormatError, HocketError
        When it is none of them.
    """
    if isinstance(wanted, Plan):
        return wanted, ""
    if isinstance(wanted, str):
        if wanted in names:
            return None, wanted
        if not os.path.exists(wanted) and not wanted.endswith((".json", ".json.zst", ".json.gz")):
            raise UnknownNameError("policy or plan file", wanted, list(names))
    elif not isinstance(wanted, os.PathLike):
        raise HocketError(
            f"plan {wanted!r} is no plan; give one, the path of its file, or one of: {', '.join(names)}"
        )
    return load_plan(os.fspath(wanted)), ""
