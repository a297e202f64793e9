"""A worker's parameters: put in place for each step as servers sent them, and changed by nobody else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch

from hocket.errors import HocketError
from hocket.runtime.passes import Parameter
from hocket.runtime.ps.fingerprint import Fingerprint

_ROUNDED = 16.0  # units in the last place of the model's largest weight


class Weights:
    """``parameters`` by name, as they are when training begins.

    What a script writes to them between steps no server knows, and the next pull would write over it. So it
    is refused in the step in which it is found: at once, but for changes of single elements by way of
    ``data``, which are found when a sample meets them (:mod:`hocket.runtime.ps.fingerprint`).
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._names = {p: name for name, p in parameters.items()}
        self._left = {p: Fingerprint(p, 0) for p in self._names}

    def put(self, p: Parameter, value: torch.Tensor, step: int) -> None:
        """Have the ``value`` that came for ``step`` in ``p``; refused where somebody else wrote to it."""
        if not self._left[p].matches(p):
            raise self._changed(p)
        p.copy_(value.view(p.shape))
        self._left[p] = Fingerprint(p, step)

    def refuse_changes(
        self,
        here: Collection[Parameter],
        sent: Callable[[Parameter], torch.Tensor],
        step: int,
        *,
        thoroughly: bool,
    ) -> None:
        """Refuse those ``here`` that are not as they came for ``step``, which is what ``sent`` says.

        ``thoroughly``: all elements are compared. Else only where something was written: weights that are
        moved and put back, as by SAM, or swapped for an evaluation, are those that came but for rounding.
        """
        suspected = [p for p in here if p.numel() and (thoroughly or not self._left[p].matches(p))]
        if not suspected:
            return
        largest = max(_largest(sent(p)) for p in here if p.numel())
        for p in suspected:
            value = sent(p)
            bound = _ROUNDED * torch.finfo(value.dtype).eps * largest
            if p.shape != value.shape or not torch.allclose(
                p.to(value.dtype), value, rtol=0.0, atol=bound, equal_nan=True
            ):
                raise self._changed(p)
            self._left[p] = Fingerprint(p, step)

    def _changed(self, p: Parameter) -> HocketError:
        return HocketError(
            f"'{self._names[p]}' was changed between steps, but the servers hold the parameters, and the"
            " change would be lost; leave it out, or train without --architecture ps"
        )


def _largest(value: torch.Tensor) -> float:
    """The largest finite magnitude."""
    return float(value.abs().nan_to_num(nan=0.0, posinf=0.0).max())
