"""Operations that always run one right after the other, joined before anything is simulated.

An operation is *separating* when everything before it in the file is over once it starts. That is so where it
needs, directly or through its inputs, every parameter that anything before it needs: a processor takes the
first ready operation in the file, and with those parameters there everything before was ready. (Where a
stream brings parameters in a known order, those before one that an operation needs are there as well.) The
next operation starts when a separating one ends, whatever the network does, if it waits for it and needs no
further parameter, and is separating too. So the two are one, unless another node waits for the moment between
them: a push whose gradient the first completes, or a server's operation.

Operations of one server that wait for the same gradients are one: nothing waits for a moment between them.
Both leave every predicted step time as it was, but where workers' updates wait for each other: then what is
one runs without another worker's in between.
"""

from __future__ import annotations

import functools
import operator

import numpy as np

from hocket.graph import StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import Dependencies, dependencies
from hocket.graph.update_operations import Mask


def group_operations(graph: StepGraph, on_server: Mask, stream: Indices, turn: Indices) -> Indices:
    """A group for each operation of the worker, (n,), numbered in file order; -1 for the others.

    on_server (n,): which operations are not the worker's.

    stream, turn (p,): parameters of one stream arrive in the order of their turns; streams of their own for
    parameters of which nothing like that is known.
    """
    worker_ops = np.flatnonzero(~on_server)
    group_of = np.full(graph.num_operations, -1)
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    if (source >= user)[~on_server[user]].any():
        # The file does not list operations in an order in which they can run: everything may overtake.
        group_of[worker_ops] = np.arange(len(worker_ops))
        return group_of
    needs = dependencies(graph)
    sets = _with_what_came_before(needs, stream, turn)
    watched = graph.produces.lengths() > 0
    watched[source[on_server[user] & ~on_server[source]]] = True
    so_far, groups, last = 0, -1, -1
    none = graph.num_operations
    run_begins = none  # the first of the separating operations that lead here without a gap
    for i in worker_ops.tolist():
        own = sets[needs.class_of[i]]
        follows = own | so_far == so_far and max(graph.inputs.row(i), default=-1) >= run_begins
        if not follows or watched[last]:
            groups += 1
        group_of[i] = groups
        so_far |= own
        if not follows:
            run_begins = i if own == so_far else none
        last = i
    return group_of


def _with_what_came_before(needs: Dependencies, stream: Indices, turn: Indices) -> list[int]:
    """For each class the parameters that are there once those it needs are, as bits."""
    before: dict[tuple[int, int], int] = {}
    so_far: dict[int, int] = {}
    for i in np.lexsort([turn, stream]).tolist():
        so_far[stream[i]] = so_far.get(stream[i], 0) | 1 << i
        before[stream[i], turn[i]] = so_far[stream[i]]
    rows = needs.rows()
    sets = []
    for k in range(rows.num_rows):
        last: dict[int, int] = {}
        for i in rows.row(k).tolist():
            last[stream[i]] = max(last.get(stream[i], -1), turn[i])
        sets.append(functools.reduce(operator.or_, (before[key] for key in last.items()), 0))
    return sets


def update_together(
    graph: StepGraph, server_of: Indices, gradients: Indices, updates: Indices, parsed_on: Indices
) -> Indices:
    """A group for each operation on a server, (n,), each on one server; -1 for the others.

    server_of (n,): the server of each operation, -1 for the worker's; gradients, updates: pairs of a
    parameter and an operation that waits for its gradient; parsed_on (p,): the server whose processor parses
    each gradient, -1 where none does.
    """
    on_server = server_of >= 0
    group_of = np.full(graph.num_operations, -1)
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    crossing = on_server[user] & on_server[source] & (server_of[user] != server_of[source])
    elsewhere = (parsed_on[gradients] >= 0) & (parsed_on[gradients] != server_of[updates])
    if crossing.any() or elsewhere.any():
        # Now one server waits for the moment at which another is done with something.
        group_of[on_server] = np.arange(on_server.sum())
        return group_of
    awaited = [0] * graph.num_operations
    for parameter, operation in zip(gradients.tolist(), updates.tolist(), strict=True):
        awaited[operation] |= 1 << parameter
    groups: dict[tuple[int, int], int] = {}
    for i in graph.order[on_server[graph.order]].tolist():
        for j in graph.inputs.row(i).tolist():
            awaited[i] |= awaited[j] if on_server[j] else 1 << (graph.num_parameters + j)
        group_of[i] = groups.setdefault((int(server_of[i]), awaited[i]), len(groups))
    return group_of
