"""TAC: order pulls by what they let the processor do and when (TicTac section 4.3, Algorithm 3).

Differs from the paper
----------------------
* Comparator: A before B iff min(P_B, M_A) < min(P_A, M_B). The body of Algorithm 3 prints the two minima
  the other way round; Equation 2, the toy graph of Figure 1 and the authors' code agree against it.
* The least pull is found by one pass in file order that replaces only a strictly greater one: Equation 2 is
  not transitive where minima tie, so a definition has to say in which order it looks.
* Times are whole picoseconds, so that ties are ties and not rounding.
* A transfer counts with the bandwidth that is left for one worker when all of them pull.
"""

from __future__ import annotations

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.kernel import kernel, look_for_stop
from hocket.network import Network, fair_share_bps
from hocket.planner.pull_plan import pull_plan

_NEVER = np.iinfo(np.int64).max


def tac(graph: StepGraph, network: Network) -> Plan:
    """Plan the pulls of ``graph`` with the minimum of each operation's samples as time oracle (section 5)."""
    transfer_s = network.startup_s + graph.parameter_bytes * 8 / fair_share_bps(network)
    return pull_plan("tac", graph, [[int(i)] for i in tac_order(graph, transfer_s)])


def tac_order(graph: StepGraph, transfer_s: np.ndarray) -> Indices:
    """Return parameters in the order of Algorithm 3; ``transfer_s``: seconds for each, shape (p,)."""
    needs = dependencies(graph)
    num_classes = len(needs.needs)
    # int64 holds 106 days in picoseconds; longer steps are counted more coarsely.
    total_s = float(graph.oracle_s.sum() + transfer_s.sum())
    ticks_per_s = min(1e12, 2.0**62 / max(total_s, 1e-300))
    oracle = np.rint(graph.oracle_s * ticks_per_s).astype(np.int64)
    transfer = np.rint(transfer_s * ticks_per_s).astype(np.int64)
    class_time = np.zeros(num_classes, dtype=np.int64)
    np.add.at(class_time, needs.class_of, oracle)
    members = needs.rows()
    holders = members.transpose(graph.num_parameters)
    ordered: Indices = _tac(
        needs.needs, members.indptr, members.indices, holders.indptr, holders.indices, class_time, transfer
    )
    return ordered


@kernel
def _tac(needs, member_ptr, member_idx, holder_ptr, holder_idx, class_time, transfer):
    """Return the pull order, shape (p,).

    needs (classes, words): bit sets; member_*: the same as rows; holder_*: the classes of each parameter;
    class_time (classes,), transfer (p,): ticks. Nothing is modified.
    """
    num_classes, num_pulls = len(class_time), len(transfer)
    missing = np.zeros(num_classes, dtype=np.int64)  # outstanding pulls of a class
    load = np.zeros(num_classes, dtype=np.int64)  # M(op) of the class
    rest = np.zeros(num_classes, dtype=np.int64)  # sum of its outstanding pulls' indices: names the last one
    gain = np.zeros(num_pulls, dtype=np.int64)  # P(r)
    for c in range(num_classes):
        for e in range(member_ptr[c], member_ptr[c + 1]):
            missing[c] += 1
            load[c] += transfer[member_idx[e]]
            rest[c] += member_idx[e]
        if missing[c] == 1:
            gain[rest[c]] += class_time[c]
    outstanding = np.ones(num_pulls, dtype=np.bool_)
    by_load = np.argsort(load, kind="mergesort")
    ordered = np.empty(num_pulls, dtype=np.int64)
    for k in range(num_pulls):
        if k % 64 == 63:
            look_for_stop()
        by_load = by_load[missing[by_load] > 1]
        impending = _impending(by_load, load, needs, outstanding)
        best = -1
        for r in range(num_pulls):
            if not outstanding[r]:
                continue
            if best < 0:
                best = r
                continue
            challenger = min(gain[best], transfer[r])
            defender = min(gain[r], transfer[best])
            if challenger < defender or (challenger == defender and impending[r] < impending[best]):
                best = r
        ordered[k] = best
        outstanding[best] = False
        for e in range(holder_ptr[best], holder_ptr[best + 1]):
            c = holder_idx[e]
            missing[c] -= 1
            load[c] -= transfer[best]
            rest[c] -= best
            if missing[c] == 1:
                gain[rest[c]] += class_time[c]
        by_load = _merge(by_load, load, needs, best)
    return ordered


@kernel
def _impending(by_load, load, needs, outstanding):
    """M+(r) for each pull: the least M of a class with more than one outstanding pull that includes r.

    ``by_load``: such classes by ascending M, so the first class that holds a pull gives its M+.
    """
    num_words = needs.shape[1]
    impending = np.full(len(outstanding), _NEVER, dtype=np.int64)
    open_words = np.zeros(num_words, dtype=np.uint64)
    num_open = 0
    for r in range(len(outstanding)):
        if outstanding[r]:
            open_words[r // 64] |= np.uint64(1) << np.uint64(r % 64)
            num_open += 1
    for c in by_load:
        if num_open == 0:
            break
        for k in range(num_words):
            found = needs[c, k] & open_words[k]
            if found:
                open_words[k] ^= found
                for bit in range(64):
                    if (found >> np.uint64(bit)) & np.uint64(1):
                        impending[64 * k + bit] = load[c]
                        num_open -= 1
    return impending


@kernel
def _merge(by_load, load, needs, pulled):
    """Sort ``by_load`` again after all classes that hold ``pulled`` became cheaper by the same amount."""
    merged = np.empty(len(by_load), dtype=np.int64)
    word, mask = pulled // 64, np.uint64(1) << np.uint64(pulled % 64)
    i = j = 0  # i walks the classes that hold it, j the others; each is sorted already
    n = len(by_load)
    for out in range(n):
        while i < n and not needs[by_load[i], word] & mask:
            i += 1
        while j < n and needs[by_load[j], word] & mask:
            j += 1
        if j >= n or (i < n and load[by_load[i]] <= load[by_load[j]]):
            merged[out] = by_load[i]
            i += 1
        else:
            merged[out] = by_load[j]
            j += 1
    return merged
