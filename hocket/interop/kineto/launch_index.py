"""An index of a traced step's launches: the last of the backward pass, and what an autograd node reads."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from hocket.graph import Phase
from hocket.interop.kineto.events import HostSpan
from hocket.interop.kineto.traced_operations import TracedStep, short_name


class StepReader:
    """Looks things up in one step by the order in which the host launched them."""

    def __init__(self, step: TracedStep) -> None:
        self.step = step
        order = sorted(range(len(step.operations)), key=lambda i: step.operations[i].gpu.call.start_us)
        self._backward = [i for i in order if step.operations[i].phase == Phase.BACKWARD]
        self._launches = [step.operations[i].gpu.call.start_us for i in self._backward]
        self._by_sequence = _forward_by_sequence(step, order)
        forward = [i for i in order if step.operations[i].phase == Phase.FORWARD]
        self.first_forward = forward[:1]
        # With gradient accumulation the last of several backward passes completes the gradients.
        read = [rows[-1] for rows, _ in self._by_sequence.values()]
        self.last_pass_us = max((step.operations[i].gpu.call.start_us for i in read), default=-math.inf)

    def last_backward(self, until_us: float) -> int:
        """The last backward operation launched until then; the first one where none was."""
        return self._backward[max(0, bisect_right(self._launches, until_us) - 1)]

    @property
    def trains(self) -> bool:
        """True if there is a backward pass."""
        return bool(self._backward)

    def readers(self, sequence: int | None) -> tuple[list[int], str]:
        """The forward operations of a node of autograd, and the operator that launched them."""
        return self._by_sequence.get(sequence, ([], ""))


def _forward_by_sequence(step: TracedStep, order: Sequence[int]) -> dict[int | None, tuple[list[int], str]]:
    found: dict[int | None, tuple[HostSpan, list[int]]] = {}
    for i in order:
        operation = step.operations[i]
        if operation.phase != Phase.FORWARD or operation.gpu.call.host is None:
            continue
        outermost = {event.sequence: event for event in operation.gpu.call.host.chain()}
        for sequence, event in outermost.items():
            if sequence is None or sequence < 0:
                continue
            known = found.get(sequence)
            # An operator without a node shows the number that the next node gets: the last one has the node.
            if known is None or known[0] is not event:
                found[sequence] = (event, [i])
            else:
                known[1].append(i)
    return {sequence: (rows, short_name(event.name)) for sequence, (event, rows) in found.items()}
