"""The operations of a step that apply gradients, and the gradients each of them waits for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import and_

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Indices
from hocket.graph.step import Phase, StepGraph

Mask = npt.NDArray[np.bool_]


def is_update(graph: StepGraph) -> Mask:
    """Update operations that only lead to update operations: what happens to parameters after a gradient."""
    mask: Mask = (graph.phases == Phase.UPDATE) & (graph.produces.lengths() == 0)
    users = graph.inputs.transpose(graph.num_operations)
    for i in graph.order[mask[graph.order]][::-1].tolist():
        mask[i] = bool(mask[users.row(i)].all())
    return mask


def awaited_gradients(graph: StepGraph, update: Mask) -> tuple[Indices, Indices, Mask]:
    """Exchanged gradients that each update waits for: parameters, operations, inputs they stand for.

    An update waits for the gradients of the parameters it reads. An input that completes gradients is known
    by them: by those that the update reads, if it reads any, else by all; the mask is over entries of
    ``graph.inputs``.
    """
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    own = update[reader] & graph.produced[read]
    parameters, operations = [read[own]], [reader[own]]
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    stands_for: Mask = update[user] & ~update[source] & (graph.produces.lengths()[source] > 0)
    # Sought among all that is completed: one operation may complete thousands, for as many updates.
    completed = np.sort(graph.produces.row_of_entry() * graph.num_parameters + graph.produces.indices)
    for op, via in zip(user[stands_for].tolist(), source[stands_for].tolist(), strict=True):
        wanted = via * graph.num_parameters + np.sort(graph.reads.row(op))
        places = np.minimum(np.searchsorted(completed, wanted), len(completed) - 1)
        read_too = wanted[completed[places] == wanted] - via * graph.num_parameters
        gradients = read_too if len(read_too) else graph.produces.row(via)
        parameters.append(gradients)
        operations.append(np.full(len(gradients), op))
    return np.concatenate(parameters), np.concatenate(operations), stands_for


def early_updates(
    graph: StepGraph, update: Mask, parameters: Indices, operations: Indices
) -> tuple[Indices, Indices, Indices]:
    """Updates that need no gradient, such as a moment's decay, with the gradients that they wait for.

    A program runs them in its optimizer's step all the same, so each waits for what all that need it wait
    for, here as pairs of parameters and operations; the third are those of which nothing is known so.
    ``parameters`` and ``operations`` are what :func:`awaited_gradients` says of the others.
    """
    # The gradients that each update needs, itself or by others, a bit each.
    needed = [0] * graph.num_operations
    for parameter, operation in zip(parameters.tolist(), operations.tolist(), strict=True):
        needed[operation] |= 1 << parameter
    in_order = graph.order[update[graph.order]].tolist()
    for i in in_order:
        for j in graph.inputs.row(i).tolist():
            needed[i] |= needed[j]
    users = graph.inputs.transpose(graph.num_operations)
    early = [i for i in in_order if not needed[i]]
    pairs: list[tuple[int, int]] = []
    unknown: list[int] = []
    for i in reversed(early):
        of_users = [needed[j] for j in users.row(i).tolist()]
        needed[i] = reduce(and_, of_users) if of_users else 0
        pairs += [(parameter, i) for parameter in _bits(needed[i])]
        unknown += [] if needed[i] else [i]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1], np.array(unknown, np.int64)


def _bits(number: int) -> Iterator[int]:
    """The places of the ones in ``number``."""
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1


def waits_for_all_gradients(graph: StepGraph) -> bool:
    """True if an update waits for every gradient of several, as a norm does that gradients are clipped by."""
    parameters, operations, _ = awaited_gradients(graph, is_update(graph))
    pairs = np.unique(operations * graph.num_parameters + parameters)
    awaited = np.bincount(pairs // graph.num_parameters) if len(pairs) else pairs
    num_exchanged = int(graph.produced.sum())
    return num_exchanged > 1 and int(awaited.max(initial=0)) == num_exchanged
