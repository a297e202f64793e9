"""The least average JCT of a few tiny jobs, found by trying everything: two servers of one GPU each.

Jobs are ``(arrival, gpus, iterations, computing, transfer)`` in whole units of time; a job of two GPUs
transfers over both links after each iteration. At each unit each GPU computes for anyone, or for nobody, and
both links carry one transfer or none: work may be put aside at any unit, which no real policy may do.
"""

from __future__ import annotations

from functools import cache
from itertools import product

TinyJob = tuple[int, int, int, int, int]
# Of a job: its server (-1: none yet, or both), iterations over, units computed on each GPU, units sent.
State = tuple[int, int, int, int, int]


def least_average_jct(jobs: tuple[TinyJob, ...]) -> float:
    """Units from arrival to end, the mean over ``jobs``."""

    def over(j: int, state: State) -> bool:
        return state[1] == jobs[j][2]

    def may_compute(j: int, state: State, gpu: int, now: int) -> bool:
        arrival, gpus, _, computing, _ = jobs[j]
        here = state[0] in (-1, gpu) or gpus == 2
        return here and not over(j, state) and arrival <= now and state[2 + gpu] < computing

    def may_transfer(j: int, state: State) -> bool:
        _, gpus, _, computing, _ = jobs[j]
        return gpus == 2 and not over(j, state) and state[2:4] == (computing, computing)

    def settled(j: int, state: State) -> State:
        """The state with an iteration more over, if that is so."""
        _, gpus, _, computing, transfer = jobs[j]
        server, iterations, first, second, sent = state
        if gpus == 2 and (first, second) == (computing, computing) and sent >= transfer:
            return server, iterations + 1, 0, 0, 0
        if gpus == 1 and first + second == computing:
            return server, iterations + 1, 0, 0, 0
        return state

    @cache
    def least(now: int, states: tuple[State, ...]) -> int:
        """The sum of the ends from here on."""
        if all(over(j, state) for j, state in enumerate(states)):
            return 0
        everyone = range(len(jobs))
        computing = [[j for j in everyone if may_compute(j, states[j], gpu, now)] for gpu in (0, 1)]
        sending = [j for j in everyone if may_transfer(j, states[j])]
        best = 10**9
        for first, second, sent in product(*([*each, None] for each in (*computing, sending))):
            if first is not None and first == second and jobs[first][1] == 1:
                continue
            after = list(states)
            for gpu, j in ((0, first), (1, second)):
                if j is not None:
                    state = list(after[j])
                    state[2 + gpu] += 1
                    state[0] = gpu if jobs[j][1] == 1 else -1
                    after[j] = (state[0], state[1], state[2], state[3], state[4])
            if sent is not None:
                after[sent] = (*after[sent][:4], after[sent][4] + 1)
            if tuple(after) == states and all(jobs[j][0] <= now or over(j, states[j]) for j in everyone):
                continue
            after = [settled(j, state) for j, state in enumerate(after)]
            ended = sum(over(j, state) and not over(j, states[j]) for j, state in enumerate(after))
            best = min(best, ended * (now + 1) + least(now + 1, tuple(after)))
        return best

    ends = least(0, tuple((-1, 0, 0, 0, 0) for _ in jobs))
    return (ends - sum(job[0] for job in jobs)) / len(jobs)
