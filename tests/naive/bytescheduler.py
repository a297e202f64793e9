"""ByteScheduler's queue as two machines and a clock that goes from event to event."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.graph import StepGraph

STEPS = 4


def order(
    graph: StepGraph,
    operations: Sequence[int],
    pieces: Sequence[tuple[set[int], float]],
    update_s: Sequence[float],
) -> list[tuple[int, float, float]]:
    """The last step's pieces (gradients, seconds on the network) as they start: which, ready, sent."""
    program: list[tuple[str, int, int]] = []
    for step in range(STEPS):
        read: set[int] = set()
        for i in operations:
            for g in graph.reads.row(i).tolist():
                if g not in read:
                    read.add(g)
                    program.append(("read", g, step))
            program.append(("run", i, step))
    first_read = {}
    for position, i in enumerate(operations):
        for g in graph.reads.row(i).tolist():
            first_read.setdefault(g, position)
    urgency = [min(first_read.get(g, len(operations)) for g in gradients) for gradients, _ in pieces]
    makers = [{i for i in operations if g in graph.produces.row(i)} for g in range(graph.num_parameters)]
    state = ["arrived"] * len(pieces)
    made: list[set[tuple[int, int]]] = [set() for _ in pieces]
    round_of = [0] * len(pieces)
    ready_at = [0.0] * len(pieces)
    started: list[tuple[int, tuple[int, float, float]]] = []
    clock, place = 0.0, 0
    computing: tuple[float, int, int] | None = None
    sending: tuple[float, int] | None = None
    while place < len(program) or computing or sending or "ready" in state:
        # Everything that ends now ends before anything starts.
        if sending and sending[0] <= clock:
            state[sending[1]] = "arrived"
            sending = None
        if computing and computing[0] <= clock and computing[1] >= 0:
            _, i, step = computing
            computing = None
            for k, (gradients, _) in enumerate(pieces):
                for g in gradients:
                    if i in makers[g]:
                        made[k].add((g, i))
                if gradients and made[k] == {(g, i) for g in gradients for i in makers[g]}:
                    made[k], state[k], round_of[k] = set(), "ready", step
                    ready_at[k] = clock
        elif computing and computing[0] <= clock:
            computing = None
        if not computing and place < len(program):
            what, index, step = program[place]
            touched = {index} if what == "read" else set(graph.produces.row(index).tolist())
            if all(state[k] == "arrived" for k, (gradients, _) in enumerate(pieces) if touched & gradients):
                seconds = update_s[index] if what == "read" else float(graph.oracle_s[index])
                computing = clock + seconds, index if what == "run" else -1, step
                place += 1
            if computing and computing[0] <= clock:
                continue
        if not sending:
            ready = [k for k in range(len(pieces)) if state[k] == "ready"]
            if ready:
                k = min(ready, key=lambda k: (urgency[k], k))
                state[k] = "sent"
                started.append((round_of[k], (k, ready_at[k], clock)))
                sending = clock + pieces[k][1], k
        clock = min([t[0] for t in (computing, sending) if t], default=clock)
    return [each for step, each in started if step == STEPS - 1]
