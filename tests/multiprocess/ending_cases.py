"""Cases of ranks that end, for test_sharding.py."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from hocket.runtime.sharding.shard_events import ShardEvents


def left_with_a_transfer(rank: int, world: int) -> bool:
    """A rank leaves while a transfer is under way, which ends while the interpreter does."""
    events = ShardEvents()
    # Functional collectives keep threads of gloo, whatever is destroyed; so does this.
    sys.modules["a_slow_end"] = _SlowEnd(seconds=3.0) if rank == 0 else None  # type: ignore[assignment]
    group = dist.group.WORLD
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
    if rank:
        time.sleep(1.0)
    work = dist.all_reduce(torch.ones(10), async_op=True)
    events.started("reduce", 0, 40, work)
    if rank:
        work.wait()
    return True


class _SlowEnd:
    """A module whose end takes ``seconds``: the end of the interpreter does, too."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __del__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        begin = clock()
        while clock() - begin < self._seconds:
            pass
