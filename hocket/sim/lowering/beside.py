"""Collectives beside computing: which of a fully sharded step's run on while its program computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunsBeside:
    """A way to issue collectives.

    ``ahead``: the program runs ahead of the device, as with GPUs; ``gathers``, ``scatters``: whether those
    run beside computing; else each is waited for as soon as it is issued.
    """

    ahead: bool = False
    gathers: bool = True
    scatters: bool = True

    @property
    def whole_scatters(self) -> bool:
        """True if a reduce-scatter sends what an all-reduce sends, as gloo's own does, which blocks."""
        return not self.scatters

    @property
    def exchanges_shares(self) -> bool:
        """True if workers exchange shares of gradients, and add them up themselves."""
        return self.scatters and not self.ahead


STREAMS = RunsBeside(ahead=True)
"""FSDP2 on GPUs."""
STARTED = RunsBeside()
"""``hocket.shard`` on processors."""
BLOCKING = RunsBeside(gathers=False, scatters=False)
"""Plain FSDP2 on processors, over gloo."""
ASYNCHRONOUS_GATHERS = RunsBeside(scatters=False)
"""Plain FSDP2 on processors with torch's switch for all-gathers that the program waits for later."""
