"""The progress of a tuning, with the options that make one that takes long shorter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hocket.cli.printing import progress
from hocket.text import counted

_LONG_S = 20.0
_FEW = 5  # simulated steps, with which a tuning is shorter


@contextmanager
def tuning_progress(workers: int, iterations: int) -> Iterator[Callable[[str, float, float], None]]:
    """The callback for :func:`hocket.tune`, whose lines name what goes on and, where it is long, a remedy.

    ``iterations``: simulated steps of a plan, which take longer the more ``workers`` there are.
    """
    began_s = time.monotonic()
    remedy = f"; --iterations {_FEW} takes less" if iterations > _FEW else ""
    slow = f" ({counted(iterations, 'step')} on {counted(workers, 'worker')}{remedy})"

    def said(what: str) -> str:
        simulates = not what.startswith("search")  # which takes its budget, however many steps
        return what + (slow if simulates and time.monotonic() - began_s > _LONG_S else "")

    with progress("tuning", is_even=False) as tell:
        yield lambda what, done, total: tell(done, total, said(what))
