"""Types of GPUs, as clusters and jobs name them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hocket.errors import HocketError
from hocket.text import counted

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MAKERS = ("nvidia", "amd", "intel", "tesla", "geforce", "quadro", "instinct", "graphics")
_LINES = ("rtx", "gtx", "titan", "radeon")
_MOST_TYPES = 60  # a bit each in one number

TYPE_RULE = "a type is named by small letters, digits, '.', '_' and '-', such as a100"


@dataclass(frozen=True, kw_only=True)
class GpuType:
    """So many GPUs of one type; ``memory_bytes``: of each, None: what the cluster says of all."""

    name: str
    num_gpus: int
    memory_bytes: float | None = None


class WholeType(NamedTuple):
    """All GPUs of one type; ``name``: "" where nobody names it; ``memory_bytes``: of each."""

    name: str
    num_gpus: int
    memory_bytes: float


def is_type_name(name: str) -> bool:
    """Tell whether a type of GPUs may have that name."""
    return _NAME.fullmatch(name) is not None


def type_of_name(name: str) -> str:
    """The type of a GPU that its maker calls ``name``: ``v100`` of "Tesla V100-SXM2-16GB"; "" of none.

    A line of products belongs to it (``rtx3090``, ``titanxp``); makers, memory and sockets do not.
    """
    words = [word for word in re.split(r"[ _]+", name.lower()) if word and word not in _MAKERS]
    model = words[0].partition("-")[0] if words else ""
    if model in _LINES and len(words) > 1:
        model += words[1].partition("-")[0]
    return model if is_type_name(model) else ""


def check_types(types: Sequence[GpuType], num_gpus: int) -> None:
    """Refuse types without a proper name, with two sizes of memory, and of too few or too many GPUs.

    Raises
    ------
    HocketError
        Naming the type and the rule.
    """
    memory: dict[str, float | None] = {}
    for each in types:
        if not is_type_name(each.name):
            raise HocketError(f"type of GPUs '{each.name}': {TYPE_RULE}")
        if each.num_gpus < 1:
            raise HocketError(f"{each.num_gpus} GPUs of {each.name}: give at least 1, or leave the type out")
        if memory.setdefault(each.name, each.memory_bytes) != each.memory_bytes:
            raise HocketError(f"{each.name} has two sizes of memory; give them two names")
    if len(memory) > _MOST_TYPES:
        raise HocketError(f"{len(memory)} types of GPUs: a cluster has at most {_MOST_TYPES}; merge some")
    if types and (total := sum(each.num_gpus for each in types)) != num_gpus:
        raise HocketError(
            f"types of {counted(total, 'GPU')} in a cluster of {num_gpus}; give every GPU a type, or none"
        )
