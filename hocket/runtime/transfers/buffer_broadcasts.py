"""Broadcasts of rank 0's buffers, which its GPU may not have yet when the host asks for them.

Over NCCL they would need a place among gradients, the same on all ranks, and they are small: hosts send them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

import torch

from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.training_device import PROCESSORS, TrainingDevice
from hocket.runtime.transfers.transfer_group import StartedCollective

_PATIENCE_S = 2.0


class BufferBroadcasts:
    """Broadcasts over ``group`` of bytes of ``device``: on a GPU a thread waits for those that are to go."""

    def __init__(self, group: GlooGroup, device: TrainingDevice) -> None:
        self.group, self.device = group, device
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, own: torch.Tensor | None, size: int) -> tuple[StartedCollective, torch.Tensor]:
        """Start to send ``own``, of rank 0; also returns where it comes, in memory of the host.

        ``own``: None where this rank has nothing to send; then ``size`` says how many bytes come.
        """
        fetched = None if own is None else self.device.fetch_to_host(own)
        theirs = self.device.host_memory(size) if own is None else own if fetched is None else fetched
        if self.device is PROCESSORS:
            return self.group.broadcast(theirs), theirs
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hocket-buffers", daemon=True)
            self._thread.start()
        filled, ended = self.device.record(), Future[None]()

        def send() -> None:
            self.device.wait(filled)
            self.group.broadcast(theirs).wait()

        self._work.put((ended, send))
        return _Started(ended), theirs

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, send = work
            try:
                send()
            except BaseException as error:  # whoever waits for it has it
                future.set_exception(error)
            else:
                future.set_result(None)

    def abandon(self) -> None:
        """Use them no more, as something is under way that may never end."""
        self.group.abandon()

    def close(self) -> None:
        """Use them no more, once what is under way has ended."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive():
                self.group.abandon()
                return
        self.group.close()


_Work = tuple["Future[None]", Callable[[], None]]


class _Started:
    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def wait(self) -> None:
        self._future.result()
