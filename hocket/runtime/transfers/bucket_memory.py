"""A bucket's memory: gradients one behind the other, and the tensors over it that parameters have."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hocket.runtime.lazy.aliases import is_referenced, shares_memory
from hocket.runtime.transfers.sparse_sums import on_wire

# As torch's own memory has: kernels may round differently elsewhere.
_ALIGNMENT_BYTES = 64


def places_in(parameters: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """The offsets of the gradients of ``parameters``, all of one type, and behind them that of flags."""
    unit = max(1, _ALIGNMENT_BYTES // parameters[0].itemsize)
    offsets, end = [], 0
    for p in parameters:
        offsets.append(end)
        end += -(-p.numel() // unit) * unit
    return offsets, end


class BucketMemory:
    """The memory of the gradients of ``parameters``, cut into ``pieces`` (offset, elements) that travel.

    ``views``: each gradient's place, strided as its parameter; ``gradients``: the same places again, as
    tensors that parameters may have for gradients, each of a storage of its own; ``used_flags``: behind them,
    one for each parameter. ``pieces``: what travels, here, or between :meth:`shorten` and :meth:`lengthen` in
    memory of a shorter type that is there meanwhile.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], pieces: Sequence[tuple[int, int]]) -> None:
        self._parameters = parameters
        offsets, end = places_in(parameters)
        first, num_flags = parameters[0], len(parameters)
        # Behind the flags, what makes shares equal.
        end_of_pieces = max((offset + length for offset, length in pieces), default=0)
        flat = first.detach().new_zeros(max(end + num_flags, end_of_pieces))
        self._offsets = offsets
        self._shares: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        self.views = [_view(flat, offset, p) for offset, p in zip(offsets, parameters, strict=True)]
        self.gradients = [_tensor_at(view) for view in self.views]
        self._addresses = [view.data_ptr() for view in self.views]
        self._strides = [view.stride() for view in self.views]
        self.used_flags = flat.narrow(0, end, num_flags)
        self._flat, self._places = flat, pieces
        self.pieces = self._cut(flat)
        self._short: torch.Tensor | None = None

    def _cut(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [on_wire(flat.narrow(0, *place)) for place in self._places]

    def shorten(self, dtype: torch.dtype, num_ranks: int) -> None:
        """Have what is here travel as ``dtype``, divided by ``num_ranks``."""
        # In the order of DistributedDataParallel's hooks. A flag is above zero however often it is rounded.
        self._short = self._flat.to(dtype).div_(num_ranks)
        self.pieces = self._cut(self._short)

    def lengthen(self) -> None:
        """Have here what has travelled so."""
        if self._short is not None:
            self._flat.copy_(self._short)
            self.pieces, self._short = self._cut(self._flat), None

    def powers(
        self, piece: int, rank: int, num_ranks: int, orders: Sequence[float]
    ) -> tuple[list[int], torch.Tensor]:
        """The gradients that ``rank``'s share of a piece has some of, and what their norms are made of.

        That is of each one's part there the sum of powers, or the largest magnitude for order inf: a row for
        each of ``orders``; in double precision, in which squares of smaller types are finite where those are.
        """
        key = piece, rank, num_ranks
        if key not in self._shares:
            self._shares[key] = self._gradients_in(*_share(self._places[piece], rank, num_ranks))
        flat = self._flat if self._short is None else self._short
        indices = [index for index, _, _ in self._shares[key]]
        parts = [on_wire(flat.narrow(0, begin, length)) for _, begin, length in self._shares[key]]
        if not parts:
            return indices, torch.zeros(len(orders), 0, dtype=torch.float64)
        return indices, torch.stack([_powers(parts, order) for order in orders])

    def _gradients_in(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """The gradients between these elements, and the begin and the length of what is there of each."""
        found = []
        for index, (offset, p) in enumerate(zip(self._offsets, self._parameters, strict=True)):
            begin, until = max(first, offset), min(end, offset + p.shape.numel())
            if begin < until:
                found.append((index, begin, until - begin))
        return found

    def has(self, index: int, gradient: torch.Tensor) -> bool:
        """Tell whether ``gradient`` is in its own place here."""
        return (
            gradient.layout is torch.strided
            and gradient.data_ptr() == self._addresses[index]
            and gradient.stride() == self._strides[index]
        )

    def can_stand_for(self, index: int, gradient: torch.Tensor) -> bool:
        """Tell whether what is here may take the place of ``gradient``, one of its parameter's."""
        return (
            type(gradient) is torch.Tensor
            and not gradient.requires_grad
            and gradient.dtype is self._flat.dtype
            and gradient.layout is torch.strided
            and gradient.stride() == self._strides[index]
        )

    def is_lent(self, index: int) -> bool:
        """Tell whether anything but its parameter has the gradient that was handed out, or its memory."""
        # No variable is to refer to it here, as that would count, nor the parameter, as it may.
        p = self._parameters[index]
        used = p.grad is self.gradients[index]
        if used:
            p.grad = None
        lent = (
            is_referenced(self.gradients, index)
            or self.gradients[index]._use_count() > 1  # type: ignore[attr-defined]
            or shares_memory(self.gradients[index])
            or not self.has(index, self.gradients[index])
        )
        if used:
            p.grad = self.gradients[index]
        return lent

    @property
    def is_used(self) -> bool:
        """True if a parameter has a gradient here."""
        return any(p.grad is own for p, own in zip(self._parameters, self.gradients, strict=True))

    @property
    def is_held(self) -> bool:
        """True if the script has any of it by a name of its own, and is to find there what it found."""
        return any(self.is_lent(index) for index in range(len(self.gradients)))


def _share(piece: tuple[int, int], rank: int, num_ranks: int) -> tuple[int, int]:
    """The begin and the end of a rank's share of ``piece``, as equal as can be."""
    offset, length = piece
    return offset + length * rank // num_ranks, offset + length * (rank + 1) // num_ranks


def _tensor_at(view: torch.Tensor) -> torch.Tensor:
    """A tensor like ``view`` whose storage ends where that does, and keeps its memory."""
    first = view.storage_offset() * view.itemsize
    storage = view.untyped_storage()[first : first + view.numel() * view.itemsize]
    tensor = torch.empty(0, dtype=view.dtype, device=view.device)
    return tensor.set_(storage, 0, view.shape, view.stride())


def _view(flat: torch.Tensor, offset: int, p: torch.Tensor) -> torch.Tensor:
    # A gradient laid out as its parameter, as autograd makes it, lets optimizers run along memory.
    piece = flat.narrow(0, offset, p.numel())
    return piece.as_strided(p.shape, p.stride()) if _is_dense(p) else piece.view(p.shape)


def _is_dense(parameter: torch.Tensor) -> bool:
    """True if the strides reach every element of a block of memory once."""
    extents = sorted(zip(parameter.stride(), parameter.shape, strict=True))
    reached = 1
    for stride, extent in extents:
        if extent != 1 and stride != reached:
            return False
        reached *= extent
    return True


def _powers(parts: list[torch.Tensor], order: float) -> torch.Tensor:
    norms = torch.stack(torch._foreach_norm(parts, order, torch.float64))
    return norms.square() if order == 2 else norms  # other orders are 1 and inf
