"""Sums of gradients that may be sparse, over all ranks, in whatever form each rank has its own.

Ranks first say in which form theirs is and how many rows it has, so that all of them decide alike. Where all
are sparse, indices and values are gathered and added up rank by rank, as gloo's sparse AllReduce in
DistributedDataParallel does: bit by bit the same sum. Where summing up every row costs less, that is done,
with a count of the ranks that have each row, and the sum is sparse all the same. Where ranks differ in form
it is dense.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.transfer_group import StartedCollective

_INDEX_BYTES = 8


class Form(enum.IntEnum):
    """The form of a gradient on a rank."""

    NONE = 0
    SPARSE = 1
    DENSE = 2


@dataclass(frozen=True)
class Sum:
    """A sum on its way: ``finish`` makes it of what has arrived, once ``works`` have ended."""

    works: Sequence[StartedCollective]
    finish: Callable[[], None]

    def wait(self) -> None:
        """Return when the sum is there."""
        for work in self.works:
            work.wait()
        self.finish()


class SparseGradient:
    """The gradient of ``parameter`` in one round: this rank's, and then the mean over the ranks.

    ``total``: the mean, None where no rank had a gradient. Layouts are strided and sparse COO.
    """

    def __init__(self, parameter: torch.Tensor) -> None:
        self.total: torch.Tensor | None = None
        self._mine: torch.Tensor | None = None
        self._size, self._dtype, self._device = parameter.shape, parameter.dtype, parameter.device

    def put(self, gradient: torch.Tensor | None, num_ranks: int) -> None:
        """Take this rank's ``gradient``, a share of it, as DistributedDataParallel divides."""
        if gradient is None:
            self._mine = None
        elif gradient.is_sparse:
            self._mine = gradient.detach() / num_ranks
        else:
            self._mine = torch.mul(gradient.detach(), 1.0 / num_ranks)

    def start(self, group: GlooGroup) -> Sum:
        """Agree on a form, which all ranks wait for, and start what brings the sum."""
        mine, self._mine = self._mine, None
        mine = mine if mine is None else mine.cpu()  # gloo's memory; a thread that transfers may wait for it
        if mine is None:
            told = [Form.NONE, 0, 0]
        elif mine.is_sparse and mine.sparse_dim():
            mine = mine.coalesce()
            told = [Form.SPARSE, mine.sparse_dim(), mine._nnz()]
        else:
            told = [Form.DENSE, 0, 0]
        heard = [row.tolist() for row in group.gather(torch.tensor(told))]
        forms = {(form, dims) for form, dims, _ in heard if form != Form.NONE}
        counts = [count for _, _, count in heard]
        if not forms:
            return Sum([], lambda: self._arrive(None))
        form, dims = next(iter(forms))
        if len(forms) > 1 or form == Form.DENSE:
            return self._sum_dense(mine, group)
        num_rows, row_size = prod(self._size[:dims]), prod(self._size[dims:])
        row_bytes = row_size * self._dtype.itemsize
        gathered = len(heard) * max(counts) * (row_bytes + _INDEX_BYTES * dims)
        # A ring moves nearly twice the bytes of what it sums up.
        if gathered > 2 * num_rows * (row_bytes + self._dtype.itemsize):
            return self._sum_rows(mine, dims, group)
        return self._gather(mine, dims, [(form != Form.NONE, count) for form, _, count in heard], group)

    def _arrive(self, total: torch.Tensor | None) -> None:
        self.total = total if total is None else total.to(self._device)

    def _sum_dense(self, mine: torch.Tensor | None, group: GlooGroup) -> Sum:
        flat = self._flat(mine)
        return Sum([group.reduce(on_wire(flat))], lambda: self._arrive(flat.view(self._size)))

    def _sum_rows(self, mine: torch.Tensor | None, dims: int, group: GlooGroup) -> Sum:
        """Every row, and behind them how many ranks have it: rows of zeros count where a rank has them."""
        shape, num_rows = self._size[:dims], prod(self._size[:dims])
        ranks = torch.zeros(shape, dtype=self._dtype)
        if mine is not None:
            ranks[tuple(mine.indices())] = 1
        flat = torch.cat([self._flat(mine), ranks.view(-1)])

        def finish() -> None:
            values, counted = flat.split([flat.numel() - num_rows, num_rows])
            places = tuple(counted.view(shape).nonzero().t())
            rows = values.view(self._size)[places]
            total = self._sparse_tensor(torch.stack(places), rows)
            total._coalesced_(True)
            self._arrive(total)

        return Sum([group.reduce(on_wire(flat))], finish)

    def _gather(
        self,
        mine: torch.Tensor | None,
        dims: int,
        rows_of_ranks: Sequence[tuple[bool, int]],
        group: GlooGroup,
    ) -> Sum:
        """All indices and values; ``rows_of_ranks``: whether each has any gradient, and how many rows."""
        longest = max(count for _, count in rows_of_ranks)
        indices = torch.zeros(dims, longest, dtype=torch.int64)
        values = torch.zeros(longest, *self._size[dims:], dtype=self._dtype)
        if mine is not None:
            indices[:, : mine._nnz()], values[: mine._nnz()] = mine.indices(), mine.values()
        sent = [indices, values.view(-1).view(torch.uint8)] if values.numel() else []
        gathering = [group.start_gather(tensor) for tensor in sent]

        def finish() -> None:
            if not gathering:
                return self._arrive(self._sparse_tensor(indices, values).coalesce())
            (_, all_indices), (_, all_values) = gathering
            total = None
            for (has, count), index, data in zip(rows_of_ranks, all_indices, all_values, strict=True):
                if not has:
                    continue
                rows = data.view(self._dtype).view(values.shape)[:count]
                part = self._sparse_tensor(index[:, :count], rows)
                total = part if total is None else total.add_(part)
            assert total is not None
            return self._arrive(total.coalesce())

        return Sum([work for work, _ in gathering], finish)

    def _sparse_tensor(self, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(indices, values, self._size, check_invariants=False)

    def _flat(self, mine: torch.Tensor | None) -> torch.Tensor:
        if mine is None:
            return torch.zeros(prod(self._size), dtype=self._dtype)
        dense = mine.to_dense() if mine.is_sparse else mine
        return dense.resolve_conj().resolve_neg().contiguous().view(-1)


def on_wire(flat: torch.Tensor) -> torch.Tensor:
    """``flat`` as gloo sums it up: complex numbers as pairs of reals, in the same memory."""
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat


def declared_sparse(model: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters whose layers say that their gradients are sparse, as DistributedDataParallel asks."""
    layers = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return [module.weight for module in model.modules() if isinstance(module, layers) and module.sparse]
