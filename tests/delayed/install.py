"""The delayed device in force: training takes processors for it, and models and their gradients are on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import ProcessGroupGloo
from torch.utils._pytree import tree_leaves

from hocket.runtime.lazy import neutral_mode
from hocket.runtime.transfers import training_device as devices
from hocket.runtime.transfers.gloo_group import GlooGroup
from tests.delayed.collectives import DeviceCollectives
from tests.delayed.memory import allocated_like, memory_of
from tests.delayed.mode import DelayedOperators
from tests.delayed.streams import Event, Stream, Streams

_SUMS = ("allreduce", "alltoall_base", "_allgather_base")  # into what they are given first
_COLLECTIVES = (*_SUMS, "broadcast", "allgather", "send", "recv")
_READERS = ("tolist", "numpy", "__array__", "__repr__", "cpu")


class DelayedDevice:
    """The device that training sees.

    ``waits``: what the host has waited for in threads that train; ``transfer_waits``: how often it has in
    those that transfer. ``sums_up``: whether it has collectives of its own, as GPUs have by NCCL; else gloo
    sums up copies on the host.
    """

    clock = "the delayed device's own"

    def __init__(self, seed: int, *, sums_up: bool = False, item_s: float = 0.0) -> None:
        self.streams = Streams(seed, item_s)
        self._sums_up = sums_up
        self._counting = threading.Lock()
        self.waits: list[str] = []
        self.transfer_waits = 0

    def record(self) -> Event:
        return self.streams.record()

    def mark(self) -> Event:
        return self.streams.record()

    def seconds_between(self, first: Event, last: Event) -> float:
        assert self.streams.has_passed(first)
        assert self.streams.has_passed(last)
        return last.time_s - first.time_s

    def has_passed(self, event: Event) -> bool:
        return event is None or self.streams.has_passed(event)

    def wait(self, event: Event) -> None:
        thread = threading.current_thread().name
        if not thread.startswith("hocket-"):
            self.waits.append("an event")
        elif thread.startswith("hocket-transfers"):
            with self._counting:
                self.transfer_waits += 1
        self.streams.wait(event)

    def follow(self, event: Event) -> None:
        if event is not None:
            self.streams.follow(event)

    def stream(self) -> Stream:
        return self.streams.current

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        return self.streams.on(stream)

    @contextlib.contextmanager
    def own_stream(self) -> Iterator[None]:
        with self.streams.on(self.streams.new(transfers=True)), self.operators(lambda _: None):
            yield

    def fetch_to_host(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if memory_of(tensor) is None:
            return None
        host = torch.empty(tensor.shape, dtype=tensor.dtype)
        host.copy_(tensor, non_blocking=True)
        return host

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def transfer_group(
        self, ranks: Sequence[int], name: str, timeout: timedelta, _: object
    ) -> DeviceCollectives | None:
        return DeviceCollectives(self.streams, GlooGroup(ranks, name, timeout)) if self._sums_up else None

    def operators(self, on_wait: Callable[[str], None] | None = None) -> DelayedOperators:
        return DelayedOperators(self.streams, on_wait or self.waits.append)


def moved(model: nn.Module) -> nn.Module:
    """``model``, which is going to be trained, on the device, where one is in force."""
    if isinstance(devices.DEVICES["cpu"], DelayedDevice):
        device = devices.DEVICES["cpu"]
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.numel() and memory_of(tensor) is None:
                    tensor.data = allocated_like(tensor, device.streams.first).copy_(tensor)
    return model


@contextlib.contextmanager
def delayed(seed: int, *, sums_up: bool = False, item_s: float = 0.0) -> Iterator[DelayedDevice]:
    """Within, there is such a device, whose order of work is that of ``seed``."""
    device = DelayedDevice(seed, sums_up=sums_up, item_s=item_s)
    with contextlib.ExitStack() as undo:
        before = devices.DEVICES["cpu"]
        devices.DEVICES["cpu"] = device
        undo.callback(devices.DEVICES.__setitem__, "cpu", before)
        _replace(undo, neutral_mode, "_disable_current_modes", lambda old: _but_ours(device, old))
        for name in _READERS:
            _replace(undo, torch.Tensor, name, lambda old: _waiting(device, old))
        for name in _COLLECTIVES:
            _replace(undo, ProcessGroupGloo, name, _on_host)
        thread = undo.enter_context(ThreadPoolExecutor(1, "device"))
        _replace(undo, torch.autograd, "_engine_run_backward", lambda old: _on(thread, device, old))
        undo.enter_context(device.operators())
        yield device


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    before = getattr(owner, name)
    setattr(owner, name, made(before))
    undo.callback(setattr, owner, name, before)


def _but_ours(device: DelayedDevice, without: Any) -> Callable[[], AbstractContextManager[None]]:
    """A device is no mode of the user's: it stays."""

    @contextlib.contextmanager
    def left() -> Iterator[None]:
        with without(), device.operators():
            yield

    return left


def _on_host(collective: Any) -> Any:
    """``collective`` of gloo's, which reaches memory of the host alone."""

    def checked(group: Any, *args: Any) -> Any:
        if any(
            isinstance(value, torch.Tensor) and memory_of(value) is not None for value in tree_leaves(args)
        ):
            raise RuntimeError("gloo was given memory of the device")
        if collective.__name__ not in _SUMS:
            return collective(group, *args)
        given, *others = args
        tensors = given if isinstance(given, list) else [given]
        copies = [tensor.clone() for tensor in tensors]
        into = copies if isinstance(given, list) else copies[0]
        return _LateSum(collective(group, into, *others), copies, tensors)

    return checked


class _LateSum:
    """A sum that nobody has before they have waited for it, however fast the network was."""

    def __init__(self, work: Any, copies: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
        self._work, self._pairs = work, list(zip(tensors, copies, strict=True))

    def wait(self, *timeout: Any) -> Any:
        ended = self._work.wait(*timeout)
        while self._pairs:
            tensor, copy = self._pairs.pop()
            tensor.copy_(copy)
        return ended

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())


def _waiting(device: DelayedDevice, read: Any) -> Any:
    """``read``, which reads memory below operators, once the values are there."""

    def waited(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if type(tensor) in (torch.Tensor, nn.Parameter) and memory_of(tensor) is not None:
            if not device.streams.working:
                device.operators().synchronise(read.__name__)
            with device.streams.now():
                return read(tensor, *args, **kwargs)
        return read(tensor, *args, **kwargs)

    return waited


def _on(thread: ThreadPoolExecutor, device: DelayedDevice, run: Any) -> Any:
    """``run``, a backward pass, in a thread of the device, as autograd has one for each but the host."""

    def elsewhere(*args: Any, **kwargs: Any) -> Any:
        if torch._C._current_graph_task_id() != -1 or threading.current_thread().name.startswith("device"):
            return run(*args, **kwargs)
        grad, stream = torch.is_grad_enabled(), device.streams.current

        def there() -> Any:
            with device.operators(), device.streams.on(stream), torch.set_grad_enabled(grad):
                return run(*args, **kwargs)

        return thread.submit(there).result()

    return elsewhere
