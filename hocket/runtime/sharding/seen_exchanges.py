"""The cost of exchanges of shares as steps of the training itself took them.

They run two at a time, and begin and end at different moments: what one takes depends on where the other is,
and no row of them by themselves has that as a backward pass has it. So each instant of the steps is shared
out between all transfers that are under way, and the sum is what exchanges, one after the other, would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from hocket.network import MeasuredLine
from hocket.runtime.sharding.shard_events import StepEvents, Transferring
from hocket.runtime.transfers.gloo_group import GlooGroup, max_over_ranks


def seen_exchanges(line: MeasuredLine, steps: Sequence[StepEvents], control: GlooGroup) -> MeasuredLine:
    """``line`` with the seconds a byte that exchanges took in ``steps``, which did the same on all ranks.

    On the rank where they took least: on others they waited for it to begin. ``line`` as it is where steps
    have none that ended, or took no more than its constant.
    """
    own_s = median(shared_s(step, "reduce") for step in steps) if steps else 0.0
    least_s = -max_over_ranks([-own_s], control)[0]
    exchanges = [each for each in steps[-1].transfers if each.kind == "reduce"] if steps else []
    moved_s = least_s - len(exchanges) * line.a_s
    size_bytes = sum(each.size_bytes for each in exchanges)
    if moved_s <= 0 or not size_bytes:
        return line
    return MeasuredLine(a_s=line.a_s, b_s_per_byte=moved_s / size_bytes)


def shared_s(step: StepEvents, kind: Transferring) -> float:
    """Seconds of the transfers of ``kind``, each instant shared out between all that are under way."""
    whole = [(each.kind, each.begin_s, each.end_s) for each in step.transfers if each.end_s is not None]
    moments = sorted({at_s for _, *ends in whole for at_s in ends})
    total_s = 0.0
    for begin_s, end_s in pairwise(moments):
        on = [of for of, from_s, until_s in whole if from_s <= begin_s and until_s >= end_s]
        if on:
            total_s += (end_s - begin_s) * on.count(kind) / len(on)
    return total_s
