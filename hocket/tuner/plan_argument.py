"""The plan argument of a script: a plan, the path of a plan's file, or the name of a policy."""

from __future__ import annotations

import os
from typing import NoReturn, TypeAlias

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import Plan, load_plan
from hocket.planner import Architecture
from hocket.tuner.policies import own_architecture, policy_names

AUTO = "auto"
"""The policy that tries the plans which look best."""

PlanArgument: TypeAlias = str | os.PathLike[str] | Plan

_TRAINS: dict[Architecture, str] = {
    "allreduce": "training by AllReduce (torchrun, hocket train)",
    "ps": "training with parameter servers (hocket train --architecture ps)",
    "fsdp": "fully sharded training (hocket.shard)",
}
_SHARDED = ("fsdp2", "zero", "zero1", "zero2", "zero3", "deepspeed", "hsdp")


def resolve_argument(argument: PlanArgument, architecture: Architecture) -> tuple[Plan | None, str]:
    """The plan that is given, or that a file holds, and else which policy for ``architecture`` it names.

    Raises
    ------
    FormatError, HocketError
        When it is none of them.
    """
    names = [AUTO, *(name for name in policy_names(architecture) if name != "exact")]
    if isinstance(argument, Plan):
        return argument, ""
    if isinstance(argument, str):
        if argument in names:
            return None, argument
        if not os.path.exists(argument) and not argument.endswith((".json", ".json.zst", ".json.gz")):
            _refuse_name(argument, architecture, names)
    elif not isinstance(argument, os.PathLike):
        raise HocketError(
            f"plan {argument!r} is no plan; give one, the path of its file, or one of: {', '.join(names)}"
        )
    return load_plan(os.fspath(argument)), ""


def _refuse_name(argument: str, architecture: Architecture, names: list[str]) -> NoReturn:
    """Say of a name that does not apply what it is."""
    name, choice = argument.lower(), f"choose one of: {', '.join(names)}"
    other = own_architecture(name)
    if other not in (None, architecture):
        raise HocketError(
            f"'{argument}' is a policy for {_TRAINS[other]}, and this is {_TRAINS[architecture]}; {choice}"
        )
    if name in names:
        raise HocketError(f"policy '{argument}' is written '{name}'")
    if name == "exact":
        raise HocketError(
            f"'{argument}' proves plans of small steps and is no policy to train by; write one by hocket plan"
            f" --policy exact and give its file, or {choice}"
        )
    if name in _SHARDED:
        raise HocketError(
            f"'{argument}' shards a model over ranks, as hocket.shard does, and every rank has the whole"
            f" model in {_TRAINS[architecture]}; {choice}"
        )
    raise UnknownNameError("policy or plan file", argument, names)
