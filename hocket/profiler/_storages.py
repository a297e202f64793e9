"""Lifetimes of the storages that a step makes: when each comes, becomes a gradient, and goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from hocket.graph import Phase
from hocket.profiler._operators import base_name, tensors

Change = Literal["comes", "is a gradient", "goes"]


class StorageEvent(NamedTuple):
    """A change of one storage; storages are numbered in the order in which they come."""

    storage: int
    change: Change
    phase: Phase


class StorageWatcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the storages of tensors that come and go inside ``with watcher.watching():``.

    Autograd keeps what it saves by the storages' own counts, so activations live as long as they do in
    training: recomputed ones, those of checkpoints, too. Sizes are those that tensors have on a GPU:
    dropout's mask, of numbers on the CPU, has a byte for each.

    Parameters
    ----------
    parameters
        The tensors whose gradients are told apart.
    outside
        Tensors that are there before and afterwards: none of their storages is noted.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], outside: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []
        """Of each storage, in bytes."""
        self.events: list[StorageEvent] = []
        self._parameters = list(parameters)
        self._outside = {storage._cdata for storage in storages_of(list(outside))}
        self._numbers: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._phase = Phase.FORWARD

    def enter(self, phase: Phase, path: str = "") -> None:
        """Say what part of the step comes next."""
        self._phase = phase

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what comes and goes inside; storages in cycles of references stay, and are collected later."""
        handles = [
            parameter.register_post_accumulate_grad_hook(self._gradient)  # type: ignore[no-untyped-call]
            for parameter in self._parameters
            if parameter.requires_grad
        ]
        collects = gc.isenabled()
        gc.collect()  # so that storages go at the same events each time
        gc.disable()
        try:
            with self:
                yield
        finally:
            self._references.clear()
            if collects:
                gc.enable()
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, then note the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for storage in storages_of(result):
            self._note(storage)
        if base_name(func) == "bernoulli_":
            self._narrow(args[0])
        return result

    def number(self, storage: torch.UntypedStorage) -> int | None:
        """The number of a storage that is there; None for one from outside."""
        return self._numbers.get(storage._cdata)

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._numbers or key in self._outside:
            return
        number = len(self.sizes)

        def gone(_: object) -> None:
            self.events.append(StorageEvent(number, "goes", self._phase))
            self._numbers.pop(key, None)
            self._references.pop(number, None)

        self._numbers[key] = number
        self._references[number] = weakref.ref(storage, gone)
        self.sizes.append(storage.nbytes())
        self.events.append(StorageEvent(number, "comes", self._phase))

    def _narrow(self, mask: Tensor) -> None:
        number = self.number(mask.untyped_storage())
        if number is not None:
            self.sizes[number] = min(self.sizes[number], mask.numel())

    def _gradient(self, parameter: Tensor) -> None:
        if parameter.grad is None:
            return
        with _disable_current_modes():
            for storage in storages_of(parameter.grad):
                number = self.number(storage)
                if number is not None:
                    self.events.append(StorageEvent(number, "is a gradient", self._phase))


def storages_of(value: Any) -> Iterator[torch.UntypedStorage]:
    """The storages of all tensors in ``value``, one more than once where several share it."""
    for tensor in tensors(value):
        parts = [tensor._indices(), tensor._values()] if tensor.layout == torch.sparse_coo else [tensor]
        for part in parts:
            yield part.untyped_storage()


def num_bytes(value: Iterable[Tensor]) -> int:
    """The bytes of the storages of ``value``, each once."""
    return sum({storage._cdata: storage.nbytes() for storage in storages_of(list(value))}.values())
