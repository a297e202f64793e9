"""Collectives of the delayed device, as NCCL's are: work of a stream of their own, as they are called."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch

from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.transfer_group import StartedCollective
from tests.delayed.memory import Use, memory_of
from tests.delayed.streams import Event, Streams


class _Collective:
    def __init__(self, streams: Streams, end: Event) -> None:
        self._streams, self._end = streams, end

    def wait(self) -> None:
        """Have the current stream follow it: the host goes on."""
        self._streams.follow(self._end)


class DeviceCollectives:
    """Ranks whose devices sum up by themselves, on ``stream``; ``gloo`` is what moves the bytes."""

    def __init__(self, streams: Streams, gloo: GlooGroup) -> None:
        self.rank, self.size = gloo.rank, gloo.size
        self._streams, self._gloo = streams, gloo
        self.stream = streams.new(transfers=True)

    def reduce(self, tensor: torch.Tensor) -> _Collective:
        """Start an AllReduce of ``tensor`` behind what the current stream was asked for."""
        return self._start(tensor, self._gloo.reduce)

    def sum_shares(self, tensor: torch.Tensor) -> _Collective:
        """Start a reduce-scatter of it in the same way."""
        return self._start(tensor, self._gloo.sum_shares)

    def gather_shares(self, tensor: torch.Tensor) -> _Collective:
        """Start an all-gather into it in the same way."""
        return self._start(tensor, self._gloo.gather_shares)

    def _start(self, tensor: torch.Tensor, start: Callable[[torch.Tensor], StartedCollective]) -> _Collective:
        block, asked = memory_of(tensor), self._streams.record()
        taken = tensor if block is None else Use(tensor, block, self.stream)

        def summed() -> float:
            there = taken.tensor() if isinstance(taken, Use) else taken
            on_host = there.clone()
            with contextlib.suppress(RuntimeError):  # one that is aborted ends, and nobody is told
                start(on_host).wait()
            there.copy_(on_host)
            return time.perf_counter()  # the network's time is the host's

        with self._streams.on(self.stream):
            self._streams.follow(asked)
            self._streams.put(summed)
            return _Collective(self._streams, self._streams.record())

    def abandon(self) -> None:
        """Use it no more, as something under way never ends."""
        self._gloo.abandon()

    def close(self) -> None:
        """Use it no more."""
        self._gloo.close()
