"""A GPU that gradients are on, of CUDA or of ROCm, which torch calls CUDA, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hocket.runtime.transfers.nccl_group import NcclGroup, has_nccl

Event = torch.cuda.Event


class CudaDevice:
    """One GPU, ``device``; which one is current is each thread's own matter, and ours may have none."""

    clock = "the GPU's own, by events on its streams"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def record(self) -> Event:
        """The moment at which what the current stream has been asked for is done."""
        # Threads that wait for one sleep: spinning, they would take processors from the one that trains.
        event: Event = torch.cuda.Event(blocking=True)
        event.record(self.stream())
        return event

    def mark(self) -> Event:
        """As :meth:`record`, timed."""
        event: Event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(self.stream())
        return event

    def seconds_between(self, first: Event, last: Event) -> float:
        """Of the GPU's clock."""
        return float(first.elapsed_time(last)) / 1e3

    def has_passed(self, event: Event | None) -> bool:
        """Tell whether ``event`` has been."""
        return event is None or bool(event.query())

    def wait(self, event: Event | None) -> None:
        """The host waits for ``event``; other threads go on meanwhile."""
        if event is not None:
            event.synchronize()

    def follow(self, event: Event | None) -> None:
        """Have what the current stream is asked for from now on done behind ``event``."""
        if event is not None:
            self.stream().wait_event(event)

    def stream(self) -> Any:
        """This thread's current stream of this GPU."""
        return torch.cuda.current_stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Within, ``stream`` is this thread's."""
        return torch.cuda.stream(stream)

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """Within, this thread has a stream of its own, before others in line, and works for this GPU."""
        with torch.cuda.device(self._device), torch.cuda.stream(torch.cuda.Stream(priority=-1)):
            yield

    def fetch_to_host(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A copy of ``tensor`` in pinned memory of the host, from the event on that is recorded next."""
        if not tensor.is_cuda:
            return None
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Pinned memory: of other memory a copy waits for the stream."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def transfer_group(
        self, ranks: Sequence[int], name: str, timeout: timedelta, process_group: dist.ProcessGroup | None
    ) -> NcclGroup | None:
        """One over NCCL, where that is what ``process_group`` uses on GPUs."""
        return NcclGroup(ranks, name, timeout, self._device) if has_nccl(process_group) else None
