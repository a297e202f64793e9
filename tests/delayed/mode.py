"""Operators on memory of the delayed device: they return at once, and are done on a stream later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from tests.delayed.memory import Use, allocated_like, memory_of, poison
from tests.delayed.streams import Streams

_NO_DISPATCH = torch.Tensor.__torch_dispatch__


class SynchronisationError(Exception):
    """An operator whose result the host reads, where the host must not wait for the device."""


class DelayedOperators(TorchDispatchMode):
    """Has operators that work on memory of the device done by ``streams``, on this thread.

    ``on_wait`` is called with what makes the host wait.
    """

    def __init__(self, streams: Streams, on_wait: Callable[[str], None]) -> None:
        super().__init__()
        self._streams = streams
        self._on_wait = on_wait

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        flat, form = tree_flatten((args, kwargs))
        tensors = [value for value in flat if isinstance(value, torch.Tensor)]
        if any(type(tensor).__torch_dispatch__ is not _NO_DISPATCH for tensor in tensors):
            return NotImplemented  # it knows better
        if self._streams.working or all(memory_of(tensor) is None for tensor in tensors):
            return func(*args, **kwargs)
        written = _written(func, args, kwargs)
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        if drawn or _is_read_by_host(func, args, tensors, written):
            # What draws numbers draws them in the order in which it is called, as on any device.
            self._streams.wait(self._streams.record()) if drawn else self.synchronise(str(func))
            result = func(*args, **kwargs)
            return tree_map_only(torch.Tensor, lambda made: self._moved(made, tensors), result)
        if written and all(found.alias_info is not None for found in func._schema.returns):
            self._put(func, flat, form, lambda _: None)
            return _returned(func, args, kwargs)
        return self._made(func, flat, form, args, kwargs, written)

    def synchronise(self, why: str) -> None:
        """The host waits for all that the current stream was asked for."""
        self._on_wait(why)
        self._streams.wait(self._streams.record())

    def _made(
        self, func: Any, flat: Sequence[Any], form: Any, args: Any, kwargs: Any, written: Sequence[Any]
    ) -> Any:
        """Results of the form that ``func`` gives them, and their values later."""
        given = (args, kwargs)
        if written:
            given = tree_map_only(torch.Tensor, torch.clone, given)
        # What it is called with may not be there yet; of the result only the form counts.
        shown = func(*given[0], **given[1])
        known = {id(value) for value in flat if isinstance(value, torch.Tensor)}
        storages = {t.untyped_storage().data_ptr() for t in flat if isinstance(t, torch.Tensor) and t.numel()}
        found, result_form = tree_flatten(shown)
        made: list[Any] = []
        into: list[tuple[int, Any]] = []
        for k, value in enumerate(found):
            fresh = isinstance(value, torch.Tensor) and value.numel() and id(value) not in known
            if not fresh or value.untyped_storage().data_ptr() in storages:  # or a view
                made.append(value)
                continue
            ours = allocated_like(value, self._streams.current)
            poison(ours)
            into.append((k, self._use(ours)))
            made.append(ours)
        if into:

            def keep(result: Any) -> None:
                values, _ = tree_flatten(result)
                for k, use in into:
                    use.tensor().copy_(values[k])

            self._put(func, flat, form, keep)
        return tree_unflatten(made, result_form)

    def _put(self, func: Any, flat: Sequence[Any], form: Any, keep: Callable[[Any], None]) -> None:
        pinned = _is_unwaited_copy(func, flat)
        taken = [self._use(value, pinned) if isinstance(value, torch.Tensor) else value for value in flat]

        def item() -> None:
            now = [value.tensor() if isinstance(value, Use) else value for value in taken]
            args, kwargs = tree_unflatten(now, form)
            keep(func(*args, **kwargs))

        self._streams.put(item)

    def _use(self, tensor: torch.Tensor, pinned: bool = False) -> Any:
        block = memory_of(tensor)
        if block is not None:
            return Use(tensor, block, self._streams.current)
        # The host's: copied before the call returns, unless it is memory that the device reads by itself.
        return tensor if pinned or not tensor.numel() else tensor.clone()

    def _moved(self, made: torch.Tensor, known: Sequence[torch.Tensor]) -> torch.Tensor:
        """A result of an operator that was waited for, in memory of the device."""
        if any(made is tensor for tensor in known) or made.layout is not torch.strided or not made.numel():
            return made
        if memory_of(made) is not None:
            return made
        return allocated_like(made, self._streams.current).copy_(made)


def _written(func: Any, args: Sequence[Any], kwargs: Any) -> list[torch.Tensor]:
    """The tensors among the arguments that ``func`` changes."""
    if func is torch.ops.aten.native_batch_norm.default:  # its schema does not say so of the statistics
        return [statistics for statistics in args[3:5] if statistics is not None]
    found: list[torch.Tensor] = []
    if not func._schema.is_mutable:
        return found
    for k, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name, args[k] if k < len(args) else None)
            found += [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]
    return found


def _returned(func: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The arguments that ``func``, which changes them, returns."""
    results = []
    for result in func._schema.returns:
        for k, argument in enumerate(func._schema.arguments):
            info = argument.alias_info
            if info is not None and info.before_set == result.alias_info.before_set:
                results.append(kwargs.get(argument.name, args[k] if k < len(args) else None))
                break
    return results[0] if len(results) == 1 else tuple(results) or None


_RESIZING = {"resize_", "set_", "resize_as_"}


def _is_read_by_host(
    func: Any, args: Sequence[Any], tensors: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
) -> bool:
    """Tell whether the host needs the values at once, or this device knows no better than to have them."""
    if func.namespace != "aten" or func._schema.name.removeprefix("aten::") in _RESIZING:
        return True
    if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags):
        return True
    if any(str(result.type) not in ("Tensor", "List[Tensor]", "Tensor[]") for result in func._schema.returns):
        return True
    if any(t.layout is not torch.strided or t.is_conj() or t.is_neg() for t in tensors):
        return True
    return any(t.numel() and memory_of(t) is None for t in written) and not _is_unwaited_copy(func, args)


def _is_unwaited_copy(func: Any, args: Sequence[Any]) -> bool:
    """Tell whether it is ``copy_(into, of, non_blocking=True)``."""
    return func is torch.ops.aten.copy_.default and len(args) > 2 and bool(args[2])
