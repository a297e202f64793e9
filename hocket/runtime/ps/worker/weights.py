"""A worker's parameters: put in place for each step as servers sent them, and changed by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import torch

from hocket.errors import HocketError
from hocket.runtime.ps.worker.fingerprint import Fingerprint
from hocket.runtime.training.hooks import Parameter


class _Move(NamedTuple):
    """``farthest``: each weight's largest magnitude among those that passes have read; ``now``: the last."""

    farthest: torch.Tensor
    now: Fingerprint


class Weights:
    """``parameters`` by name, as they are when training begins.

    Servers do not know of what a script writes to them between steps, and the next pull would undo it. So it
    is refused in the step in which it is found: at once, but for changes of single elements by way of
    ``data``, which are found when a sample meets them (:mod:`hocket.runtime.ps.worker.fingerprint`).

    Weights may be moved for some passes and put back. Swapped for an evaluation they come back bit by bit;
    where a move is added and subtracted, as by SAM, but for the rounding of both sums, which is half a unit
    in the last place of each.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._names = {p: name for name, p in parameters.items()}
        self._fingerprints = {p: Fingerprint(p, 0) for p in self._names}
        self._moves: dict[Parameter, _Move] = {}

    def put(self, p: Parameter, value: torch.Tensor, step: int) -> None:
        """Have the ``value`` that came for ``step`` in ``p``; refused where other code wrote to it."""
        if not self._fingerprints[p].matches(p):
            raise self._change_error(p)
        p.copy_(value.view(p.shape))
        self._fingerprints[p] = Fingerprint(p, step)
        self._moves.pop(p, None)

    def note_moves(self, here: Collection[Parameter], step: int) -> None:
        """A pass is going to read those ``here``: how far they have been moved, if they have."""
        for p in here:
            moved = self._moves.get(p)
            if self._fingerprints[p].matches(p) or (moved is not None and moved.now.matches(p)):
                continue
            magnitude = p.abs()
            if moved is not None and moved.farthest.shape == p.shape:
                magnitude = torch.maximum(magnitude, moved.farthest)
            self._moves[p] = _Move(magnitude, Fingerprint(p, step))

    def refuse_changes(
        self,
        here: Collection[Parameter],
        pulled_value: Callable[[Parameter], torch.Tensor],
        step: int,
        *,
        thoroughly: bool,
    ) -> None:
        """Refuse those ``here`` that are not as they came for ``step``, which is what ``pulled_value`` says.

        ``thoroughly``: all elements are compared. Else only where something was written.
        """
        for p in here:
            if not p.numel() or (self._fingerprints[p].matches(p) and not thoroughly):
                continue
            if not self._is_back(p, pulled_value(p)):
                raise self._change_error(p)
            self._fingerprints[p] = Fingerprint(p, step)

    def _is_back(self, p: Parameter, value: torch.Tensor) -> bool:
        if p.shape != value.shape:
            return False
        weights = p.to(value.dtype)
        same = torch.isclose(weights, value, rtol=0.0, atol=0.0, equal_nan=True)
        if same.all():
            return True
        moved = self._moves.get(p)
        if moved is None or moved.farthest.shape != p.shape:
            return False
        # Halves of two units: together at most that of the larger magnitude.
        rounded = torch.finfo(value.dtype).eps * torch.maximum(moved.farthest, value.abs())
        return bool((same | ((weights - value).abs() <= rounded)).all())

    def _change_error(self, p: Parameter) -> HocketError:
        return HocketError(
            f"'{self._names[p]}' was changed between steps, but the servers hold the parameters, and the"
            " change would be lost; leave it out, or train without --architecture ps"
        )
