"""A plan laid out in memory: its buckets, and in which order their transfers go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from hocket.graph import Plan
from hocket.graph.plan import batch_name
from hocket.runtime.transfers.bucket_memory import places_in
from hocket.runtime.transfers.buckets import Bucket, BucketTransfer
from hocket.runtime.transfers.gradient_types import type_on_wire
from hocket.runtime.transfers.sparse_sums import SparseGradient


@dataclass(eq=False, frozen=True)
class Layout:
    """Every bucket and, in the plan's order, every transfer; ``place``: each parameter's bucket and index."""

    plan: Plan
    buckets: tuple[Bucket, ...]
    transfers: tuple[BucketTransfer, ...]
    place: dict[torch.nn.Parameter, tuple[Bucket, int]]


def lay_out(
    plan: Plan,
    parameters: Mapping[str, torch.nn.Parameter],
    sparse: Collection[torch.nn.Parameter] = (),
    gradient_dtype: torch.dtype | None = None,
) -> Layout:
    """The buckets of ``plan``, which covers the trained ``parameters`` (by name) as plans have to.

    A reduction of several types or devices becomes one for each. Buckets hold as many bytes as the gradients,
    but for those of ``sparse`` parameters: each is one transfer, where it, or its first slice, is listed.
    Others travel as ``gradient_dtype`` where they are longer.
    """
    buckets: list[Bucket] = []
    transfers: list[BucketTransfer] = []
    sliced: dict[str, Bucket] = {}
    for reduction in plan.reductions:
        forward = reduction.window == "forward"
        if reduction.slice is None:
            for names in _alike(reduction.parameters, parameters, sparse):
                if parameters[names[0]] in sparse:
                    bucket = _sparse_bucket(names[0], parameters)
                    transfers.append(BucketTransfer(bucket, 0, names[0]))
                else:
                    bucket = _bucket(names, parameters, forward, gradient_dtype)
                    transfers += _cut(bucket, reduction.chunks)
                buckets.append(bucket)
            continue
        (name,), (first, end, count) = reduction.parameters, reduction.slice
        if parameters[name] in sparse:
            if name not in sliced:
                sliced[name] = _sparse_bucket(name, parameters)
                buckets.append(sliced[name])
                transfers.append(BucketTransfer(sliced[name], 0, name))
            continue
        if name not in sliced:
            sliced[name] = _bucket((name,), parameters, forward, gradient_dtype)
            buckets.append(sliced[name])
        slices = _split(sliced[name], count)[first:end]
        elements = sum(length for _, length in slices)
        if elements:
            shown = batch_name(tuple(f"{name}[{k}]" for k in range(first, end)))
            transfers.append(_transfer(sliced[name], (slices[0][0], elements), shown))
    place = {p: (bucket, i) for bucket in buckets for i, p in enumerate(bucket.parameters)}
    return Layout(plan, tuple(buckets), tuple(transfers), place)


def _alike(
    names: Sequence[str],
    parameters: Mapping[str, torch.nn.Parameter],
    sparse: Collection[torch.nn.Parameter],
) -> Iterator[tuple[str, ...]]:
    kinds: dict[tuple[torch.dtype, torch.device, str], list[str]] = {}
    for name in names:
        p = parameters[name]
        kinds.setdefault((p.dtype, p.device, name if p in sparse else ""), []).append(name)
    for alike in kinds.values():
        yield tuple(alike)


def _bucket(
    names: tuple[str, ...],
    by_name: Mapping[str, torch.nn.Parameter],
    forward: bool,
    gradient_dtype: torch.dtype | None,
) -> Bucket:
    parameters = tuple(by_name[name] for name in names)
    own = parameters[0].dtype
    sent = type_on_wire(own, gradient_dtype)
    return Bucket(names, parameters, forward, short_dtype=None if sent is own else sent)


def _sparse_bucket(name: str, by_name: Mapping[str, torch.nn.Parameter]) -> Bucket:
    p = by_name[name]
    return Bucket((name,), (p,), False, sparse=SparseGradient(p))


def _cut(bucket: Bucket, chunks: int) -> list[BucketTransfer]:
    name = batch_name(bucket.names)
    pieces = [piece for piece in _split(bucket, chunks) if piece[1]]
    return [
        _transfer(bucket, piece, name if len(pieces) == 1 else f"{name} {k + 1}/{len(pieces)}")
        for k, piece in enumerate(pieces)
    ]


def _split(bucket: Bucket, count: int) -> list[tuple[int, int]]:
    """Offset and elements of ``count`` parts, as equal as can be, of the memory of ``bucket``."""
    elements = places_in(bucket.parameters)[1] + len(bucket.parameters)
    longer, length = elements % count, elements // count
    return [(k * length + min(k, longer), length + (k < longer)) for k in range(count)]


def _transfer(bucket: Bucket, piece: tuple[int, int], name: str) -> BucketTransfer:
    bucket.pieces.append(piece)
    return BucketTransfer(bucket, len(bucket.pieces) - 1, name)
