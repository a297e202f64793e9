"""The parts of a traced step's time: computing, communication that nothing covers, and idle time by cause.

Each moment of a step counts once. It is computing while anything but a collective runs on the GPU, exposed
communication while collectives alone do, and else idle: the host's as long as it had not launched what runs
next, and otherwise spent waiting for something that it had launched (another stream, an event).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from hocket.graph import Phase
from hocket.interop.kineto.events import Gpu
from hocket.interop.kineto.frameworks import every_collective
from hocket.interop.kineto.traced_collectives import TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep

OF_GRADIENTS = "all-reduces of gradients"
OF_UNITS = {"gather": "all-gathers of parameters", "scatter": "reduce-scatters of gradients"}
"""The names of what plans place: the first of data-parallel training, the others of sharded training."""
_MICRO = 1e-6

Span = tuple[float, float, str]
"""Begin and end in microseconds, and what it is."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The seconds of a step by what they are spent on; all parts add up to ``elapsed_s``.

    ``computing_s``: by phase; ``exposed_s``: by the name of the collectives; ``host_s``: idle until the host
    launches what is next; ``waiting_s``: idle though it is launched.
    """

    elapsed_s: float
    computing_s: dict[str, float]
    exposed_s: dict[str, float]
    host_s: float
    waiting_s: float

    @property
    def computed_s(self) -> float:
        """Seconds in which something is computed."""
        return sum(self.computing_s.values())

    @property
    def communication_s(self) -> float:
        """Seconds in which collectives alone run."""
        return sum(self.exposed_s.values())


@dataclass(frozen=True, kw_only=True)
class CollectiveUse:
    """The collectives of one name in a step: how many, what they carry and take, and what of it is exposed.

    ``size_bytes``: None if one is not known; ``took_s``: of all together, waiting for other ranks included.
    """

    name: str
    kind: str
    count: int
    size_bytes: int | None
    ranks: int | None
    took_s: float
    exposed_s: float


@dataclass(frozen=True, kw_only=True)
class OperationUse:
    """The operations of one name in a step: how many, and their time on the GPU, streams added up."""

    name: str
    count: int
    took_s: float


def step_times(step: TracedStep) -> StepTimes:
    """The time of a step by what each moment was spent on."""
    begin_us, end_us = step.from_us, step.until_us
    computing = _apart(
        (operation.gpu.start_us, operation.gpu.end_us, operation.phase.name.lower())
        for operation in step.operations
        if operation.collective is None
    )
    names = _names(step)
    communicating = _apart(
        (collective.gpu.start_us, collective.gpu.end_us, names[id(collective)])
        for collective in every_collective(step)
    )
    computing = _within(computing, begin_us, end_us)
    exposed = _without(_within(communicating, begin_us, end_us), computing)
    busy = sorted([*computing, *exposed])
    host_us, waiting_us = _idle(busy, step, begin_us)
    return StepTimes(
        elapsed_s=(end_us - begin_us) * _MICRO,
        computing_s=_seconds(computing, [phase.name.lower() for phase in Phase]),
        exposed_s=_seconds(exposed, list(dict.fromkeys(names.values()))),
        host_s=host_us * _MICRO,
        waiting_s=waiting_us * _MICRO,
    )


def mean_times(steps: Sequence[TracedStep]) -> StepTimes:
    """The mean of several steps' times."""
    every = [step_times(step) for step in steps]
    return StepTimes(
        elapsed_s=fmean(times.elapsed_s for times in every),
        computing_s=_mean([times.computing_s for times in every]),
        exposed_s=_mean([times.exposed_s for times in every]),
        host_s=fmean(times.host_s for times in every),
        waiting_s=fmean(times.waiting_s for times in every),
    )


def collective_uses(steps: Sequence[TracedStep], times: StepTimes) -> list[CollectiveUse]:
    """The collectives of a step by name, those that take longest first; ``times``: the mean of ``steps``."""
    took: dict[str, list[float]] = defaultdict(list)
    first: dict[str, list[TracedCollective]] = defaultdict(list)
    for step in steps:
        names = _names(step)
        for collective in every_collective(step):
            took[names[id(collective)]].append((collective.gpu.end_us - collective.gpu.start_us) * _MICRO)
            if step is steps[0]:
                first[names[id(collective)]].append(collective)
    uses = []
    for name, own in first.items():
        sizes = [collective.size_bytes for collective in own if collective.size_bytes is not None]
        ranks = {collective.group_size for collective in own}
        uses.append(
            CollectiveUse(
                name=name,
                kind=own[0].kind,
                count=len(own),
                size_bytes=sum(sizes) if len(sizes) == len(own) else None,
                ranks=next(iter(ranks)) if len(ranks) == 1 else None,
                took_s=sum(took[name]) / len(steps),
                exposed_s=times.exposed_s.get(name, 0.0),
            )
        )
    return sorted(uses, key=lambda use: -use.took_s)


def operation_uses(steps: Sequence[TracedStep]) -> list[OperationUse]:
    """The operations of a step by name, those that take longest first."""
    took: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for step in steps:
        for operation in step.operations:
            if operation.collective is None:
                took[operation.name] += (operation.gpu.end_us - operation.gpu.start_us) * _MICRO
                counts[operation.name] += step is steps[0]
    uses = [
        OperationUse(name=name, count=counts[name], took_s=seconds / len(steps))
        for name, seconds in took.items()
    ]
    return sorted(uses, key=lambda use: -use.took_s)


def busy_s(step: TracedStep) -> float:
    """Seconds of a step in which anything runs on the GPU."""
    ran = [(operation.gpu.start_us, operation.gpu.end_us, "") for operation in step.operations]
    ran += [(exchange.gpu.start_us, exchange.gpu.end_us, "") for exchange in step.exchanges]
    return sum(end - start for start, end, _ in _within(_apart(ran), step.from_us, step.until_us)) * _MICRO


def _names(step: TracedStep) -> dict[int, str]:
    """The names of collectives, by id: what each is for, if that is known, else its kind; and its group."""
    names = {id(reduction): OF_GRADIENTS for reduction in step.reductions}
    names |= {id(transfer.collective): OF_UNITS[transfer.kind] for transfer in step.transfers}
    for collective in every_collective(step):
        group = f" (group {collective.group})" if collective.group else ""
        names.setdefault(id(collective), f"{collective.kind.replace('_', '-')}s{group}")
    return names


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Spans of which each has what none that began before it covers."""
    found: list[Span] = []
    busy_us = float("-inf")
    for start, end, name in sorted(spans):
        if end > busy_us:
            found.append((max(start, busy_us), end, name))
            busy_us = end
    return found


def _within(spans: Iterable[Span], begin_us: float, end_us: float) -> list[Span]:
    cut = ((max(start, begin_us), min(end, end_us), name) for start, end, name in spans)
    return [(start, end, name) for start, end, name in cut if end > start]


def _without(spans: Sequence[Span], covers: Sequence[Span]) -> list[Span]:
    """The parts of ``spans`` outside of ``covers``; both are in order and each apart."""
    found: list[Span] = []
    k = 0
    for start, end, name in spans:
        while k < len(covers) and covers[k][1] <= start:
            k += 1
        i, at = k, start
        while i < len(covers) and covers[i][0] < end:
            if covers[i][0] > at:
                found.append((at, covers[i][0], name))
            at = max(at, covers[i][1])
            i += 1
        if at < end:
            found.append((at, end, name))
    return found


def _idle(busy: Sequence[Span], step: TracedStep, begin_us: float) -> tuple[float, float]:
    """Microseconds in which nothing runs: until the host launches what is next, and after that."""
    launched: dict[float, float] = {}
    ran: list[Gpu] = [operation.gpu for operation in step.operations]
    ran += [exchange.gpu for exchange in step.exchanges]
    for gpu in ran:
        launched[gpu.start_us] = max(launched.get(gpu.start_us, float("-inf")), gpu.call.end_us)
    host_us = waiting_us = 0.0
    at = begin_us
    for start, end, _ in busy:
        if start > at:
            of_host = min(start, max(at, launched.get(start, at))) - at
            host_us += of_host
            waiting_us += start - at - of_host
        at = max(at, end)
    return host_us, waiting_us


def _seconds(spans: Iterable[Span], names: Sequence[str]) -> dict[str, float]:
    found = dict.fromkeys(names, 0.0)
    for start, end, name in spans:
        found[name] += (end - start) * _MICRO
    return found


def _mean(every: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for own in every for name in own)
    return {name: fmean(own.get(name, 0.0) for own in every) for name in names}
