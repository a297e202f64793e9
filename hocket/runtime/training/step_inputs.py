"""The inputs of a step, by their shapes: they tell steps of one batch size from those of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import torch
from torch.utils._pytree import tree_iter

from hocket.runtime.training.first_readers import Hook
from hocket.text import counted

Shape: TypeAlias = tuple[int | None, ...]


class StepInputs(msgspec.Struct, frozen=True):
    """The tensors that a model is called with in the steps of one rank.

    ``passes``: forward passes a step, None where steps have not as many; ``shapes``: of each tensor, with
    None for what is not the same in all of them, and None where they are not as many tensors of as many
    dimensions.
    """

    passes: int | None
    shapes: tuple[Shape, ...] | None

    def might_be(self, other: StepInputs) -> bool:
        """Tell whether both may be of steps that compute as much: nothing that is known of both differs."""
        if not _alike(self.passes, other.passes):
            return False
        if self.shapes is None or other.shapes is None:
            return True
        mine, theirs = self.shapes, other.shapes
        return [len(shape) for shape in mine] == [len(shape) for shape in theirs] and all(
            _alike(a, b)
            for shape, their_shape in zip(mine, theirs, strict=True)
            for a, b in zip(shape, their_shape, strict=True)
        )

    def __str__(self) -> str:
        shapes = "tensors of several shapes"
        if self.shapes is not None:
            each = ("x".join("?" if n is None else str(n) for n in shape) or "one" for shape in self.shapes)
            shapes = " and ".join(each) or "no tensors"
        return shapes if self.passes in (1, None) else f"{shapes} in {counted(self.passes, 'pass', 'passes')}"


class InputNotes:
    """Notes of what ``model`` is called with in training, until :meth:`end`; ``step``: steps so far."""

    def __init__(self, model: torch.nn.Module, step: Callable[[], int]) -> None:
        self._step = step
        self._passes: Counter[int] = Counter()
        self._shapes: list[Shape] | None = None
        self._are_many_kinds = False
        self._handle = model.register_forward_pre_hook(Hook(self._note, always=True), with_kwargs=True)

    def end(self) -> None:
        """Note no more."""
        self._handle.remove()

    def inputs(self) -> StepInputs:
        """The inputs of all steps so far that are over."""
        passes = {count for step, count in self._passes.items() if step < self._step()}
        shapes = None if self._are_many_kinds or self._shapes is None else tuple(self._shapes)
        return StepInputs(passes.pop() if len(passes) == 1 else None, shapes)

    def _note(self, _: torch.nn.Module, *arguments: Any) -> None:
        if not torch.is_grad_enabled():
            return
        self._passes[self._step()] += 1
        shapes: list[Shape] = [tuple(x.shape) for x in tree_iter(arguments) if isinstance(x, torch.Tensor)]
        before = shapes if self._shapes is None else self._shapes
        if [len(shape) for shape in before] != [len(shape) for shape in shapes]:
            self._are_many_kinds = True
            return
        self._shapes = [
            tuple(a if a == b else None for a, b in zip(*pair, strict=True))
            for pair in zip(before, shapes, strict=True)
        ]


def differing_inputs(kept: Sequence[StepInputs], now: Sequence[StepInputs]) -> str:
    """The difference of inputs in words, on the first rank that has one; empty: there is none."""
    for rank, (theirs, ours) in enumerate(zip(kept, now, strict=False)):
        if not theirs.might_be(ours):
            return f"was chosen for inputs of {theirs}, and rank {rank} has {ours}"
    return ""


def _alike(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a == b
