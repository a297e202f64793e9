"""A plan laid out in memory: its buckets, and in which order their transfers go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from hocket.graph import Plan, Reduction
from hocket.graph.plan import batch_name
from hocket.runtime.transfers.bucket_memory import places_in
from hocket.runtime.transfers.buckets import Bucket, BucketTransfer, Part
from hocket.runtime.transfers.gradient_types import type_on_wire
from hocket.runtime.transfers.sparse_sums import SparseGradient


@dataclass(eq=False, frozen=True)
class Layout:
    """Every bucket and, in the plan's order, every transfer; ``place``: each parameter's bucket and index.

    All-gathers come behind all other transfers, in the plan's order, too.
    """

    plan: Plan
    buckets: tuple[Bucket, ...]
    transfers: tuple[BucketTransfer, ...]
    place: dict[torch.nn.Parameter, tuple[Bucket, int]]

    @property
    def has_halves(self) -> bool:
        """True if any of it travels in halves."""
        return any(transfer.part is not Part.WHOLE for transfer in self.transfers)


def lay_out(
    plan: Plan,
    parameters: Mapping[str, torch.nn.Parameter],
    sparse: Collection[torch.nn.Parameter] = (),
    gradient_dtype: torch.dtype | None = None,
    num_ranks: int = 1,
) -> Layout:
    """The buckets of ``plan``, which covers the trained ``parameters`` (by name) as plans have to.

    A reduction of several types or devices becomes one for each. Buckets hold as many bytes as the gradients,
    but for those of ``sparse`` parameters: each is one transfer, where it, or its first slice, is listed.
    Others travel as ``gradient_dtype`` where they are longer.
    A reduction in halves has a share for each of ``num_ranks``; for one rank it goes whole.
    """
    building = _Building(parameters, sparse, gradient_dtype, num_ranks)
    halved_slices = {r.parameters[0] for r in plan.reductions if r.slice is not None and r.halves}
    for reduction in plan.reductions:
        if reduction.slice is None:
            building.add_whole(reduction)
        else:
            building.add_slices(reduction, reduction.slice, reduction.parameters[0] in halved_slices)
    buckets = building.buckets
    place = {p: (bucket, i) for bucket in buckets for i, p in enumerate(bucket.parameters)}
    return Layout(plan, tuple(buckets), (*building.transfers, *building.gathers), place)


class _Building:
    """A layout as it grows, reduction by reduction."""

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        sparse: Collection[torch.nn.Parameter],
        gradient_dtype: torch.dtype | None,
        num_ranks: int,
    ) -> None:
        self._parameters, self._sparse, self._num_ranks = parameters, sparse, num_ranks
        self._gradient_dtype = gradient_dtype
        self.buckets: list[Bucket] = []
        self.transfers: list[BucketTransfer] = []
        self.gathers: list[BucketTransfer] = []
        self._sliced: dict[str, Bucket] = {}

    def add_whole(self, reduction: Reduction) -> None:
        """A bucket of each type that ``reduction``, of whole parameters, has."""
        for names in _alike(reduction.parameters, self._parameters, self._sparse):
            if self._parameters[names[0]] in self._sparse:
                self._add_sparse(names[0])
                continue
            bucket = self._add_bucket(names, reduction)
            name = batch_name(bucket.names)
            parts = self._split(bucket, reduction.chunks, halves=reduction.halves)
            pieces = [piece for piece in parts if piece[1]]
            for k, piece in enumerate(pieces):
                shown = name if len(pieces) == 1 else f"{name} {k + 1}/{len(pieces)}"
                self._add_piece(bucket, piece, shown, halves=reduction.halves)

    def add_slices(self, reduction: Reduction, cut: tuple[int, int, int], any_halves: bool) -> None:
        """Slices of a parameter; ``any_halves``: some of it, these or others, goes in halves."""
        (name,), (first, end, count) = reduction.parameters, cut
        if self._parameters[name] in self._sparse:
            if name not in self._sliced:
                self._sliced[name] = self._add_sparse(name)
            return
        if name not in self._sliced:
            self._sliced[name] = self._add_bucket((name,), reduction)
        slices = self._split(self._sliced[name], count, halves=any_halves)[first:end]
        elements = sum(length for _, length in slices)
        if elements:
            shown = batch_name(tuple(f"{name}[{k}]" for k in range(first, end)))
            self._add_piece(self._sliced[name], (slices[0][0], elements), shown, halves=reduction.halves)

    def _add_bucket(self, names: tuple[str, ...], reduction: Reduction) -> Bucket:
        parameters = tuple(self._parameters[name] for name in names)
        own = parameters[0].dtype
        sent = type_on_wire(own, self._gradient_dtype)
        short = None if sent is own else sent
        bucket = Bucket(names, parameters, reduction.window == "forward", short_dtype=short)
        self.buckets.append(bucket)
        return bucket

    def _add_sparse(self, name: str) -> Bucket:
        p = self._parameters[name]
        bucket = Bucket((name,), (p,), False, sparse=SparseGradient(p))
        self.buckets.append(bucket)
        self.transfers.append(BucketTransfer(bucket, 0, name))
        return bucket

    def _split(self, bucket: Bucket, count: int, *, halves: bool) -> list[tuple[int, int]]:
        """Offset and elements of ``count`` parts, as equal as can be, of the memory of ``bucket``.

        Of what goes in ``halves`` each part has as many elements for each rank; the last are no gradient's.
        """
        unit = self._num_ranks if halves else 1
        units = -(-(places_in(bucket.parameters)[1] + len(bucket.parameters)) // unit)
        longer, length = units % count, units // count
        starts = [k * length + min(k, longer) for k in range(count + 1)]
        return [(start * unit, (end - start) * unit) for start, end in pairwise(starts)]

    def _add_piece(self, bucket: Bucket, piece: tuple[int, int], name: str, *, halves: bool) -> None:
        bucket.pieces.append(piece)
        number = len(bucket.pieces) - 1
        if not halves or self._num_ranks == 1:
            self.transfers.append(BucketTransfer(bucket, number, name))
            return
        self.transfers.append(BucketTransfer(bucket, number, f"{name} (scatter)", Part.SCATTER))
        self.gathers.append(BucketTransfer(bucket, number, f"{name} (gather)", Part.GATHER))


def _alike(
    names: Sequence[str],
    parameters: Mapping[str, torch.nn.Parameter],
    sparse: Collection[torch.nn.Parameter],
) -> Iterator[tuple[str, ...]]:
    """``names`` by their parameters' types and devices, each sparse one alone."""
    kinds: dict[tuple[torch.dtype, torch.device, str], list[str]] = {}
    for name in names:
        p = parameters[name]
        kinds.setdefault((p.dtype, p.device, name if p in sparse else ""), []).append(name)
    for alike in kinds.values():
        yield tuple(alike)
