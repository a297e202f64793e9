"""The operations of a traced step: what ran on the GPU, in which phase, and how long it takes.

**Phases.** Update: launched in ``Optimizer.step#`` (not by the closure that it may call, which holds both
passes), or after the last operation that autograd's nodes launched. Backward: launched by one of these nodes,
by what FSDP2 does behind the last one, or by compiled autograd. Forward: the rest.

**Durations.** A step is one sequence to Hocket, so an operation takes the time on the GPU that no
operation before it covers, and the idle time before it: that is what the host kept the GPU waiting for.
Not counted is idle time that ends with an all-reduce of gradients, after the operation was launched: that
wait is what plans change. In a sharded step it is idle time in which a gathering or a scattering of a unit
runs: streams beside the computing one also wait, and copy what is gathered next.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hocket.graph import Phase
from hocket.interop.kineto.compiled_backward import in_compiled_backward
from hocket.interop.kineto.events import NODE_PREFIX, OPTIMIZER_PREFIX, Gpu, HostSpan
from hocket.interop.kineto.traced_collectives import ALL_REDUCE, TracedCollective, collective_of, of_gradients
from hocket.interop.kineto.unit_marks import UnitTransfer, behind_backward

_MICRO = 1e-6
UNMARKED = "the whole trace"


@dataclass(slots=True, eq=False)
class TracedOperation:
    """A GPU operation of one step; ``name`` as yet without a number."""

    gpu: Gpu
    phase: Phase
    name: str
    duration_s: float = 0.0
    collective: TracedCollective | None = None


@dataclass(slots=True, eq=False)
class TracedStep:
    """One step; ``operations`` in order of their start, ``reductions`` in the order of their launch.

    ``transfers``: of a sharded step the gatherings and scatterings of units, in the order of their launch.
    ``marks``: how many marked steps it holds, more than one where gradients are accumulated over them.
    ``missing``: how many of its operations a trace that is cut does not hold, as far as that can be told.
    ``from_us``, ``until_us``: the ends of the step before and of this one on the GPU, ``elapsed_s`` apart.
    ``waited_s``: of that what operations waited for what plans place (``exchanges``).
    """

    label: str
    begin_us: float
    end_us: float
    marks: int = 1
    missing: int = 0
    host: list[HostSpan] = field(default_factory=list)
    operations: list[TracedOperation] = field(default_factory=list)
    reductions: list[TracedCollective] = field(default_factory=list)
    transfers: list[UnitTransfer] = field(default_factory=list)
    from_us: float = 0.0
    until_us: float = 0.0
    waited_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds from the end of the step before to the end of this one."""
        return (self.until_us - self.from_us) * _MICRO

    def launched(self) -> list[int]:
        """Places of the operations in the order of their launch.

        It is the program's: streams run beside one another, and which starts first differs by chance. What
        one call launched, as that of a CUDA graph does, goes stream by stream.
        """
        of = [operation.gpu for operation in self.operations]
        return sorted(range(len(of)), key=lambda i: (of[i].call.start_us, of[i].stream))

    @property
    def others(self) -> list[TracedOperation]:
        """The collectives among the operations: those that exchange no gradients."""
        return [operation for operation in self.operations if operation.collective is not None]

    @property
    def exchanges(self) -> list[TracedCollective]:
        """The collectives that plans place: all-reduces of gradients, or transfers of units."""
        return [*self.reductions, *(transfer.collective for transfer in self.transfers)]

    @property
    def reduced_bytes(self) -> int | None:
        """Bytes of the messages that exchange gradients; None where one is unknown."""
        sizes = [reduction.size_bytes for reduction in self.reductions if reduction.size_bytes is not None]
        return sum(sizes) if len(sizes) == len(self.reductions) else None

    @property
    def updates(self) -> bool:
        """Tell whether anything runs in it after the backward pass."""
        return any(operation.phase == Phase.UPDATE for operation in self.operations)

    def key(self) -> tuple[object, ...]:
        """A key that steps which do the same share: their operations and all-reduces in launch order."""
        in_order = [self.operations[i] for i in self.launched()]
        return (
            tuple((operation.phase, operation.name) for operation in in_order),
            tuple(reduction.size_bytes for reduction in self.reductions),
            tuple(transfer.key for transfer in self.transfers),
        )


def updates_after(event: HostSpan) -> bool:
    """Tell whether it is an optimizer's step, but none that a hook runs within the backward pass."""
    if not event.name.startswith(OPTIMIZER_PREFIX):
        return False
    return not any(around.name.startswith(NODE_PREFIX) for around in event.chain())


def short_name(name: str) -> str:
    """An operator without its namespace; of autograd's nodes, the node."""
    if name.startswith(NODE_PREFIX):
        name = name.rpartition(": ")[2]
    return name.rpartition("::")[2]


def fill(step: TracedStep, ran: Sequence[Gpu]) -> None:
    """Sort what ran into operations and reductions, each with its phase and name."""
    chains = [gpu.call.host.chain() if gpu.call.host is not None else [] for gpu in ran]
    found = [collective_of(gpu, chain) for gpu, chain in zip(ran, chains, strict=True)]
    phases = _phases(ran, chains)
    # Other all-reduces of the backward pass are a layer's own, as of batch statistics.
    reductions = [
        collective
        for collective, phase in zip(found, phases, strict=True)
        if collective is not None
        and collective.kind == ALL_REDUCE
        and phase == Phase.BACKWARD
        and collective.hooked
    ]
    reductions.sort(key=lambda reduction: reduction.gpu.call.start_us)
    step.reductions = of_gradients(reductions, step.host)
    exchanging = {id(reduction) for reduction in step.reductions}
    step.operations = [
        TracedOperation(gpu, phase, _name(gpu, chain, phase, collective), collective=collective)
        for gpu, chain, phase, collective in zip(ran, chains, phases, found, strict=True)
        if id(collective) not in exchanging
    ]


def _phases(ran: Sequence[Gpu], chains: Sequence[Sequence[HostSpan]]) -> list[Phase]:
    by_node = sorted(
        gpu.call.start_us
        for gpu, chain in zip(ran, chains, strict=True)
        if any(passes_back(event) for event in chain)
    )
    last_us = by_node[-1] if by_node else math.inf
    return [
        _phase(gpu.call.start_us, chain, by_node, last_us) for gpu, chain in zip(ran, chains, strict=True)
    ]


def _phase(at_us: float, chain: Sequence[HostSpan], by_node: Sequence[float], last_us: float) -> Phase:
    """Of what is launched at ``at_us``; ``by_node``: when autograd's nodes launched something."""
    node = next((i for i, event in enumerate(chain) if passes_back(event)), None)
    optimizer = next((i for i, event in enumerate(chain) if event.name.startswith(OPTIMIZER_PREFIX)), None)
    if optimizer is None:
        if node is not None:
            return Phase.BACKWARD
        return Phase.UPDATE if at_us > last_us else Phase.FORWARD
    if node is not None:
        # The innermost counts: optimizers run in hooks of autograd, and backward passes in their closures.
        return Phase.BACKWARD if node < optimizer else Phase.UPDATE
    follows = bisect_right(by_node, at_us) < bisect_right(by_node, chain[optimizer].end_us)
    return Phase.FORWARD if follows else Phase.UPDATE


def passes_back(event: HostSpan) -> bool:
    """Tell whether what runs in an event is of the backward pass."""
    return event.name.startswith(NODE_PREFIX) or behind_backward(event) or in_compiled_backward(event)


def _name(gpu: Gpu, chain: Sequence[HostSpan], phase: Phase, collective: TracedCollective | None) -> str:
    part = phase.name.lower()
    if collective is not None:
        return f"{part}/{collective.kind}"
    operators = [event for event in chain if not event.annotation]
    if not operators:
        return f"{part}/{re.split('[<(]', gpu.name.removeprefix('void '))[0].strip() or 'kernel'}"
    inner = operators[0]
    node = next((event for event in operators if event.name.startswith(NODE_PREFIX)), None)
    around, name = short_name((node or operators[-1]).name), short_name(inner.name)
    return f"{part}/{name}" if around == name else f"{part}/{around}/{name}"


def time_operations(step: TracedStep, busy_us: float) -> float:
    """Give the step's operations their durations; when the GPU has been busy until, before and after."""
    step.from_us = busy_us
    waited = _waited_for_transfers(step) if step.transfers else _waited_for_reductions(step)
    for operation in step.operations:
        gpu = operation.gpu
        waited_us = waited(gpu, busy_us) if gpu.start_us > busy_us else 0.0
        operation.duration_s = max(0.0, max(0.0, gpu.end_us - busy_us) - waited_us) * _MICRO
        step.waited_s += waited_us * _MICRO
        busy_us = max(busy_us, gpu.end_us)
    step.until_us = busy_us
    return busy_us


Waited = Callable[[Gpu, float], float]
"""A function that tells for how long an operation waited for exchanges, since the GPU was busy last."""


def _waited_for_reductions(step: TracedStep) -> Waited:
    ends = sorted((reduction.gpu.end_us, reduction.gpu.call.start_us) for reduction in step.reductions)

    def waited(gpu: Gpu, busy_us: float) -> float:
        k = bisect_right(ends, (gpu.start_us, float("inf"))) - 1
        if k >= 0 and ends[k][1] < gpu.call.start_us:
            return max(0.0, ends[k][0] - max(busy_us, gpu.call.end_us))
        return 0.0

    return waited


def _waited_for_transfers(step: TracedStep) -> Waited:
    spans = sorted((exchange.gpu.start_us, exchange.gpu.end_us) for exchange in step.exchanges)
    starts = [start for start, _ in spans]

    def waited(gpu: Gpu, busy_us: float) -> float:
        at, total_us = max(busy_us, gpu.call.end_us), 0.0
        k = max(0, bisect_right(starts, at) - 1)
        while k < len(spans) and spans[k][0] < gpu.start_us:
            begin, end = max(at, spans[k][0]), min(spans[k][1], gpu.start_us)
            total_us, at = total_us + max(0.0, end - begin), max(at, end)
            k += 1
        return total_us

    return waited
