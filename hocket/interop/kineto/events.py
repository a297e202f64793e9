"""The events of a Kineto trace: operators of the host, calls of the runtime, and work on the GPU.

Times are microseconds.
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
    """Details that an event gives of itself, where it does.

    Of operators: ``function_id``; ``sequence``, which ties a forward operator to its backward one; ``shapes``
    and ``types`` of arguments. Of the GPU and the runtime: ``correlation``, ``stream`` (Intel's:
    ``queue``), ``copied_bytes``, ``bandwidth`` (None where it was no number). Of collectives:
    ``collective``, ``elements``, ``out_elements``, ``dtype``, ``group`` and ``group_name``. Of waits of a
    stream: the last three.
    """

    function_id: int | None = msgspec.field(name="Record function id", default=None)
    sequence: int | None = msgspec.field(name="Sequence number", default=None)
    dims: Any = msgspec.field(name="Input Dims", default=None)
    dims_of_1_8: Any = msgspec.field(name="Input dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    correlation: Any = None
    stream: Any = None
    queue: Any = msgspec.field(name="sycl queue", default=None)
    copied_bytes: Any = msgspec.field(name="bytes", default=None)
    bandwidth: Any = msgspec.field(name="memory bandwidth (GB/s)", default=msgspec.UNSET)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Description", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    sync_kind: Any = msgspec.field(name="cuda_sync_kind", default=None)
    on_stream: Any = msgspec.field(name="wait_on_stream", default=None)
    recorded_by: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)

    @property
    def shapes(self) -> Any:
        """Of arguments, as PyTorch 1.8 spelled it or later versions."""
        return self.dims_of_1_8 if self.dims is None else self.dims


@dataclass(slots=True, eq=False)
class HostSpan:
    """An operator or annotation that ran on a thread from ``start_us`` to ``end_us``."""

    name: str
    thread: Any
    start_us: float
    end_us: float
    annotation: bool
    args: Args
    parent: HostSpan | None = None

    def chain(self) -> list[HostSpan]:
        """This one and what encloses it, innermost first."""
        found, at = [], self
        while True:
            found.append(at)
            if at.parent is None:
                return found
            at = at.parent


@dataclass(slots=True, eq=False)
class RuntimeCall:
    """A call of the runtime, and the innermost operator in which it was made."""

    name: str
    thread: Any
    start_us: float
    end_us: float
    correlation: int
    host: HostSpan | None = None


@dataclass(slots=True, eq=False)
class Gpu:
    """An operation on a GPU's stream; ``call`` launched it."""

    name: str
    stream: int
    start_us: float
    end_us: float
    args: Args
    call: RuntimeCall


@dataclass(slots=True, eq=False)
class Unlaunched:
    """An operation on a GPU's stream whose call is not in the file; ``place``: in the file's events."""

    place: int
    stream: int
    start_us: float
    end_us: float


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
    what was not read.
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

    def refuse(self, rule: str, place: str = "traceEvents") -> NoReturn:
        """Raise FormatError for this file."""
        raise FormatError(self.source, place, rule)


def whole(value: Any) -> int | None:
    """A whole number that some versions leave out or write as text; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
