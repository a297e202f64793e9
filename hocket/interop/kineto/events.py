"""The events of a Kineto trace: operators of the host, calls of the runtime, and work on the GPU.

Times are microseconds. There are millions of spans, calls and operations, which form no circle: none is
looked at by the collector of circles, which would cost each a header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from hocket.errors import FormatError

STEP_PREFIX = "ProfilerStep#"
OPTIMIZER_PREFIX = "Optimizer.step#"
NODE_PREFIX = "autograd::engine::evaluate_function"
ACCUMULATE = "torch::autograd::AccumulateGrad"


class Args(msgspec.Struct, frozen=True, gc=False):
    """Details that an event gives of itself, where it does, whatever they are.

    Of operators: ``shapes`` and ``types`` of arguments. Of copies: ``copied_bytes``. Of collectives:
    ``collective``, ``elements``, ``out_elements``, ``dtype``, and of the process group ``group``,
    ``group_name`` and ``group_size``. Events that have all of it alike share one.
    """

    shapes: Any = None
    types: Any = None
    copied_bytes: Any = None
    collective: Any = None
    elements: Any = None
    out_elements: Any = None
    dtype: Any = None
    group: Any = None
    group_name: Any = None
    group_size: Any = None


class HostSpan(msgspec.Struct, eq=False, gc=False):
    """An operator or annotation that ran on a thread from ``start_us`` to ``end_us``.

    ``sequence`` ties a forward operator to its backward one.
    """

    name: str
    thread: Any
    start_us: float
    end_us: float
    annotation: bool
    args: Args
    sequence: int | None = None
    function_id: int | None = None
    parent: HostSpan | None = None

    def chain(self) -> list[HostSpan]:
        """This one and what encloses it, innermost first."""
        found, at = [], self
        while True:
            found.append(at)
            if at.parent is None:
                return found
            at = at.parent


class RuntimeCall(msgspec.Struct, eq=False, gc=False):
    """A call of the runtime, and the innermost operator in which it was made."""

    name: str
    thread: Any
    start_us: float
    end_us: float
    correlation: int
    host: HostSpan | None = None


class Gpu(msgspec.Struct, eq=False, gc=False):
    """An operation on a GPU's stream; ``call`` launched it."""

    name: str
    stream: int
    start_us: float
    end_us: float
    args: Args
    call: RuntimeCall


@dataclass(slots=True, eq=False)
class Unlaunched:
    """An operation on a GPU's stream whose call is not in the file; ``place``: in the file's events.

    ``stream``: None where it is not known. ``correlated``: whether it says which call it is of; ``of_graph``:
    whether it is of a CUDA graph.
    """

    name: str
    place: int
    stream: int | None
    start_us: float
    end_us: float
    correlated: bool = True
    of_graph: bool = False


@dataclass(slots=True, eq=False)
class StreamWait:
    """``stream`` waits, from ``call`` on, for what was on ``on_stream`` when ``recorded_by`` was called."""

    stream: int
    call: RuntimeCall
    on_stream: int
    recorded_by: RuntimeCall


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One rank's trace; everything in order of its start.

    ``batch_size``: what ``profiler.add_metadata_json`` recorded under that name, as it is.
    ``gpu``: those whose call is known. ``waits``: the host waits for the GPU until each one's end. ``notes``:
    what was not read. ``cut``: the file ends before its end, and is read as far as it goes; ``unanswered``:
    then the times of calls that launched something of which the file holds nothing.
    """

    source: str
    rank: int | None
    world_size: int | None
    device: str
    batch_size: Any
    host: Sequence[HostSpan]
    gpu: Sequence[Gpu]
    waits: Sequence[RuntimeCall]
    stream_waits: Sequence[StreamWait]
    unlaunched: Sequence[Unlaunched] = field(default=())
    notes: Sequence[str] = field(default=())
    cut: bool = False
    unanswered: Sequence[float] = field(default=())

    def refuse(self, rule: str, place: str = "traceEvents") -> NoReturn:
        """Raise FormatError for this file."""
        raise FormatError(self.source, place, rule)


def whole(value: Any) -> int | None:
    """A whole number that some versions leave out or write as text; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
