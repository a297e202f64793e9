"""Sums of gradients' shares, bit by bit those of gloo's own reduce-scatter, from half of what that sends.

Gloo's reduce-scatter is its all-reduce, a ring, of which all but a share is thrown away. Ranks that send each
other the shares and add them up themselves send half as much. So that no bit differs, numbers are added in
the order in which the ring adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

_SEGMENT_BYTES = 1 << 20  # the longest that gloo's ring sends at once
_TRIED = (7, 1001)


def block_length(share: int, ranks: int, itemsize: int) -> int:
    """The elements that gloo's ring has one rank begin with, for ``share`` elements of each of ``ranks``.

    As in gloo's allreduce.cc: segments of equal length, at least two for each rank, rounded up.
    """
    total = share * ranks * itemsize
    longest = itemsize * max(1, _SEGMENT_BYTES // itemsize)
    segments = max(-(-total // longest), 2 * ranks)
    each = -(-segments // ranks)
    length = -(-total // (each * ranks))
    return each * -(-length // itemsize)


def sum_shares(received: torch.Tensor, output: torch.Tensor, rank: int, ranks: int, mean: bool) -> None:
    """Add up ``received``, this rank's share from each of ``ranks``, into ``output``; ``mean``: of them."""
    share = output.numel()
    parts = received.split(share)
    block = block_length(share, ranks, output.element_size())
    begin = 0
    while begin < share:
        # The share begins at this element of all; rounding has blocks end a little behind shares.
        number = min((rank * share + begin) // block, ranks - 1)
        end = share if number == ranks - 1 else min(share, (number + 1) * block - rank * share)
        _sum_in_order([part[begin:end] for part in parts], output[begin:end], number)
        begin = end
    if mean:
        output.div_(ranks)


def _sum_in_order(parts: Sequence[torch.Tensor], output: torch.Tensor, block: int) -> None:
    """Add up ``parts`` as the ring does for this block: from the rank before it, backwards around."""
    output.copy_(parts[block - 1])
    for step in range(2, len(parts) + 1):
        output.add_(parts[block - step])


def sums_are_gloos(group: dist.ProcessGroup) -> bool:
    """Tell whether :func:`sum_shares` gives what gloo's reduce-scatter does; tried on all of ``group``."""
    rank, ranks = group.rank(), group.size()
    alike = True
    for share in _TRIED:
        generator = torch.Generator().manual_seed(rank)
        numbers = torch.randn(share * ranks, generator=generator)
        theirs, ours = torch.empty(share), torch.empty(share)
        of_torch("reduce_scatter_single", "reduce_scatter_tensor")(
            theirs, numbers.clone(), op=dist.ReduceOp.AVG, group=group
        )
        received = torch.empty_like(numbers)
        dist.all_to_all_single(received, numbers, group=group)
        sum_shares(received, ours, rank, ranks, mean=True)
        alike &= torch.equal(theirs, ours)
    told = torch.tensor([int(alike)])
    dist.all_reduce(told, op=dist.ReduceOp.MIN, group=group)
    return bool(told)


def of_torch(name: str, older: str) -> Any:
    """The collective of this ``name``, which older versions of torch have by another."""
    return getattr(dist, name, None) or getattr(dist, older)
