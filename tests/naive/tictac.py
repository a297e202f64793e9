"""Naive twins of TIC and TAC: Algorithms 1 to 3 of the TicTac paper, set by set, Equation 2 compares."""

from __future__ import annotations

import math

import numpy as np

from hocket.graph import StepGraph


def needs(graph: StepGraph) -> list[set[int]]:
    """op.dep: the parameters that each operation needs, directly or transitively."""
    found: dict[int, set[int]] = {}

    def need(i: int) -> set[int]:
        if i not in found:
            found[i] = set(graph.reads.row(i).tolist())
            for j in graph.inputs.row(i).tolist():
                found[i] |= need(j)
        return found[i]

    return [need(i) for i in range(graph.num_operations)]


def properties(graph: StepGraph, compute, transfer, outstanding: set[int]):  # type: ignore[no-untyped-def]
    """P and M+ of every outstanding pull (Algorithm 1)."""
    gain = dict.fromkeys(outstanding, 0)
    impending = dict.fromkeys(outstanding, math.inf)
    for i, need in enumerate(needs(graph)):
        left = need & outstanding
        load = sum(transfer[r] for r in left)
        if len(left) == 1:
            gain[next(iter(left))] += compute[i]
        for r in left if len(left) > 1 else ():
            impending[r] = min(impending[r], load)
    return gain, impending


def tic_ranks(graph: StepGraph) -> list[int]:
    """Dense ranks of M+ with unit transfers and free computation (Algorithm 2)."""
    everything = set(range(graph.num_parameters))
    _, impending = properties(graph, [0] * graph.num_operations, [1] * graph.num_parameters, everything)
    levels = sorted(set(impending.values()))
    return [levels.index(impending[r]) for r in range(graph.num_parameters)]


def tac_order(graph: StepGraph, transfer_s: np.ndarray) -> list[int]:
    """The order of Algorithm 3, times in whole picoseconds."""
    compute = [round(t * 1e12) for t in graph.oracle_s.tolist()]
    transfer = [round(t * 1e12) for t in transfer_s.tolist()]
    outstanding = set(range(graph.num_parameters))
    order = []
    while outstanding:
        gain, impending = properties(graph, compute, transfer, outstanding)

        def before(a: int, b: int, gain=gain, impending=impending) -> bool:  # type: ignore[no-untyped-def]
            first, second = min(gain[b], transfer[a]), min(gain[a], transfer[b])
            return impending[a] < impending[b] if first == second else first < second

        best = min(outstanding)
        for r in sorted(outstanding):
            if before(r, best):
                best = r
        order.append(best)
        outstanding.remove(best)
    return order
