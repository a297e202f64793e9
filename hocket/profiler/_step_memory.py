"""The memory of a step, from two runs of it on fake tensors: of its batch, and of one twice as large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map

from hocket.errors import HocketError
from hocket.graph import Phase
from hocket.graph.module_names import block_of
from hocket.graph.step import PHASE_NAMES
from hocket.graph.step_memory import MemoryMoment, StepMemory
from hocket.profiler._batch import first_extent
from hocket.profiler._step import ProfiledStep
from hocket.profiler._storages import StorageWatcher, num_bytes, storages_of

_Bytes = npt.NDArray[np.float64]

# Shares of the gradients that a device may hold, each of which has fullest moments of its own.
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_NARROW = (torch.float16, torch.bfloat16)


def record_memory(step: ProfiledStep, batch_size: int) -> StepMemory:
    """The memory of ``step``, of fake tensors and ``batch_size`` examples, whose optimizer has no state yet.

    Raises
    ------
    HocketError
        When the step raises.
    """
    with _as_on_gpus(step.optimizer):
        here = _run(step)
    lines = _lines(step, here)
    parameters = step.parameters()
    state = _state(step.optimizer)
    updated = [] if step.optimizer is None else [p for p in parameters.values() if p.requires_grad]
    blocks = _blocks(parameters)
    return StepMemory(
        batch_size=batch_size,
        parameters_bytes=float(num_bytes(parameters.values())),
        buffers_bytes=float(num_bytes(_buffers(step))),
        gradients_bytes=float(here.gradients.max(initial=0.0)),
        optimizer_bytes=float(num_bytes(state)),
        block_bytes=float(max((size for name, size in blocks.items() if name), default=0)),
        root_bytes=float(blocks.get("", 0)),
        masters_bytes=float(
            2 * num_bytes(each for each in updated if each.dtype in _NARROW)
            + num_bytes(each for each in state if each.dtype in _NARROW)
        ),
        moments=_fullest(_with_update(_flat(here) if lines is None else lines, here), batch_size),
        scales=lines is not None,
    )


@dataclass(frozen=True, kw_only=True)
class _Held:
    """The bytes after each change of a run: of gradients, and of other tensors but for the state."""

    phases: npt.NDArray[np.int8]
    gradients: _Bytes
    others: _Bytes
    changes: list[tuple[int, str]]
    sizes: list[int]

    @property
    def computed(self) -> int:
        """The number of changes before the update."""
        return int((self.phases != Phase.UPDATE).sum())


class _Lines(NamedTuple):
    """The bytes after each change for any batch: gradients, other tensors, and their growth."""

    phases: npt.NDArray[np.int8]
    gradients: _Bytes
    fixed: _Bytes
    of_batch: _Bytes


def _run(step: ProfiledStep) -> _Held:
    batch = [leaf for leaf in tree_leaves(step.batch) if isinstance(leaf, Tensor)]
    outside = [*step.parameters().values(), *_buffers(step), *batch, *_state(step.optimizer)]
    watcher = StorageWatcher(step.parameters().values(), outside)
    with watcher.watching():
        step.run(watcher.enter)
        state = {watcher.number(storage) for storage in storages_of(_state(step.optimizer))}
    return _held(watcher, state, sum(leaf.numel() * leaf.element_size() for leaf in batch))


def _held(watcher: StorageWatcher, state: set[int | None], batch_bytes: int) -> _Held:
    """Sums after each change; storages of ``state`` count as the optimizer's from when they come."""
    gradients, others = np.zeros(len(watcher.events)), np.zeros(len(watcher.events))
    accumulated: set[int] = set()
    for k, (storage, change, _) in enumerate(watcher.events):
        size = 0 if storage in state else watcher.sizes[storage]
        if change == "comes":
            others[k] = size
        elif change == "goes":
            (gradients if storage in accumulated else others)[k] = -size
        elif storage not in accumulated:
            accumulated.add(storage)
            gradients[k], others[k] = size, -size
    return _Held(
        phases=np.array([event.phase for event in watcher.events], dtype=np.int8),
        gradients=np.cumsum(gradients),
        others=batch_bytes + np.cumsum(others),
        changes=[(event.storage, event.change) for event in watcher.events],
        sizes=watcher.sizes,
    )


def _lines(step: ProfiledStep, here: _Held) -> _Lines | None:
    """Lines before the update, from runs of larger batches; None where tensors do not grow evenly."""
    size = first_extent(step.batch)
    # Tensors of the batch begin with its extent or, where it is folded into another, with a multiple of it.
    for grows in (lambda extent: extent == size, lambda extent: extent % size == 0) if size else ():
        small = here
        # Some steps lay a single example out in another way: then larger batches tell what one more takes.
        for times in (1, 2):
            larger = replace(step, batch=_repeated(step.batch, 2 * times, grows), optimizer=None)
            try:
                large = _run(larger)
            except HocketError:  # a size that the model has written down, or a tensor of no examples
                break
            if (lines := _line_of(small, large, times)) is not None:
                return lines
            small = large
    return None


def _repeated(batch: Any, times: int, grows: Callable[[int], bool]) -> Any:
    """``batch`` with ``times`` the examples; of its tensors those whose first extent ``grows``."""

    def repeated(value: Any) -> Any:
        if not (isinstance(value, Tensor) and value.ndim and grows(len(value))):
            return value
        return torch.cat([value.detach()] * times).requires_grad_(value.requires_grad)

    return tree_map(repeated, batch)


def _line_of(small: _Held, large: _Held, times: int) -> _Lines | None:
    """Lines through two runs, of ``times`` the recorded batch and of twice that.

    None unless both make the same tensors in the same order, and none more than twice as large.
    """
    computed, count = small.computed, min(len(small.sizes), len(large.sizes))
    before, after = np.array(small.sizes[:count]), np.array(large.sizes[:count])
    if small.changes[:computed] != large.changes[:computed] or not len(before):
        return None
    if ((after < before) | (after > 2 * before)).any():
        return None
    of_batch = (large.others[:computed] - small.others[:computed]) / times
    fixed = np.maximum(small.others[:computed] - times * of_batch, 0.0)
    return _Lines(small.phases[:computed], small.gradients[:computed], fixed, of_batch)


def _flat(here: _Held) -> _Lines:
    """Lines before the update where only the recorded batch is known."""
    computed = here.computed
    fixed = here.others[:computed]
    return _Lines(here.phases[:computed], here.gradients[:computed], fixed, np.zeros(computed))


def _with_update(lines: _Lines, here: _Held) -> _Lines:
    """Lines of the whole step: what the backward pass leaves for each example is there in the update, too."""
    update = slice(here.computed, None)
    left = np.full(len(here.phases[update]), lines.of_batch[-1] if len(lines.of_batch) else 0.0)
    return _Lines(
        np.concatenate([lines.phases, here.phases[update]]),
        np.concatenate([lines.gradients, here.gradients[update]]),
        np.concatenate([lines.fixed, np.maximum(here.others[update] - left, 0.0)]),
        np.concatenate([lines.of_batch, left]),
    )


def _fullest(lines: _Lines, batch_size: int) -> tuple[MemoryMoment, ...]:
    """The moments of which one has most bytes, for any batch and any share of the gradients."""
    chosen = {k for share in _SHARES for k in envelope(lines.fixed + share * lines.gradients, lines.of_batch)}
    return tuple(
        MemoryMoment(
            phase=PHASE_NAMES[lines.phases[k]],
            gradients_bytes=float(lines.gradients[k]),
            fixed_bytes=float(lines.fixed[k]),
            bytes_per_example=float(lines.of_batch[k] / batch_size),
        )
        for k in sorted(chosen)
    )


def envelope(fixed: _Bytes, slopes: _Bytes) -> list[int]:
    """The lines ``fixed + slopes * x`` of which one is highest at some x from 0 on, by growing slope."""
    best = int(np.lexsort((slopes, fixed))[-1])
    found = [best]
    while True:
        steeper = np.flatnonzero(slopes > slopes[best])
        if not len(steeper):
            return found
        crossings = (fixed[best] - fixed[steeper]) / (slopes[steeper] - slopes[best])
        best = int(steeper[np.lexsort((slopes[steeper], -crossings))[-1]])
        found.append(best)


def _buffers(step: ProfiledStep) -> list[Tensor]:
    return [buffer for root in step.roots.values() for buffer in root.buffers()]


def _state(optimizer: Optimizer | None) -> list[Tensor]:
    if optimizer is None:
        return []
    return [leaf for leaf in tree_leaves(list(optimizer.state.values())) if isinstance(leaf, Tensor)]


def _blocks(parameters: Mapping[str, nn.Parameter]) -> dict[str, int]:
    """Bytes of parameters by block, a numbered module such as ``layers.0``, and under "" of the rest."""
    sizes: dict[str, int] = {}
    for name, parameter in parameters.items():
        block = block_of(name)
        sizes[block] = sizes.get(block, 0) + parameter.numel() * parameter.element_size()
    return sizes


@contextmanager
def _as_on_gpus(optimizer: Optimizer | None) -> Iterator[None]:
    """Inside, an optimizer of torch's takes all parameters at once, as it does on GPUs unless told otherwise.

    That needs temporary tensors of all of them at a time.
    """
    groups = [] if optimizer is None else optimizer.param_groups
    untold = [g for g in groups if g.get("foreach", False) is None and not g.get("fused")]
    for group in untold:
        group["foreach"] = True
    try:
        yield
    finally:
        for group in untold:
            group["foreach"] = None
