"""The papers by name, and running some of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module

import msgspec

from hocket.errors import UnknownNameError
from hocket.reproduce.reproduction import Reproduction
from hocket.reproduce.setting import Progress, ReproductionSetting

PAPERS = ("tictac", "ibatch", "caramel", "prediction", "contention")
"""Each a folder of this one, whose ``reproduce`` makes it."""
ALL = "all"


def papers_of(names: Sequence[str]) -> tuple[str, ...]:
    """The papers that ``names`` ask for, each once, in the order of :data:`PAPERS`; ``all`` asks for all.

    Raises
    ------
    UnknownNameError
        For a name that is none of them.
    """
    for name in names:
        if name not in (*PAPERS, ALL):
            raise UnknownNameError("paper", name, (*PAPERS, ALL))
    return PAPERS if ALL in names else tuple(paper for paper in PAPERS if paper in names)


def reproduce(
    papers: Sequence[str], setting: ReproductionSetting, progress: Progress | None = None
) -> list[Reproduction]:
    """Make each of ``papers``, one after the other; each uses all cores.

    Raises
    ------
    UnknownNameError
        For a paper that is not there.
    HocketError
        As what a paper measures raises it.
    """
    found = []
    for paper in papers_of(papers):
        make: Callable[[ReproductionSetting, Progress | None], Reproduction] = import_module(
            f"hocket.reproduce.{paper}"
        ).reproduce
        started = time.perf_counter()
        made = make(setting, progress)
        found.append(msgspec.structs.replace(made, wall_s=time.perf_counter() - started))
    return found
