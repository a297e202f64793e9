"""The categories of a trace's events: which are read, which a step needs, and what times are believed."""

from __future__ import annotations

from hocket.errors import FormatError
from hocket.interop.kineto.event_stream import Unreadable
from hocket.interop.kineto.events import (
    ACCUMULATE,
    NODE_PREFIX,
    OPTIMIZER_PREFIX,
    STEP_PREFIX,
)
from hocket.interop.kineto.wire_events import WireEvent

GPU = frozenset(("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"))
# Of other accelerators: read where they say what launched them, as operations of GPUs do.
OTHER_DEVICES = {"mtia_ccp_events": "MTIA", "hpu_op": "HPU"}
OF_DEVICE = {
    **{"xpu_runtime": "xpu", "xpu_driver": "xpu", "mtia_runtime": "mtia", "hpu_runtime": "hpu"},
    **{"privateuse1_runtime": "privateuse1", "privateuse1_driver": "privateuse1"},
}
RUNTIME = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime", *OF_DEVICE))
HOST = frozenset(("cpu_op", "Operator", "user_annotation"))
SYNC = frozenset(("cuda_sync",))
_COPIES = GPU - {"kernel", "Kernel"}
READ = GPU | RUNTIME | HOST | SYNC | frozenset(OTHER_DEVICES)
_NEEDED = (NODE_PREFIX, ACCUMULATE, STEP_PREFIX, OPTIMIZER_PREFIX, "c10d::", "nccl:", "record_param_comms")

# The longest time and duration that are believed: 30,000 and 30 years.
_LATEST_US = 1e18
_LONGEST_US = 1e15


def left_out(event: WireEvent) -> bool:
    """Tell whether it cannot be read, and a step does not need it."""
    if event.cat in _COPIES:
        return event.args.correlation is None or event.args.bandwidth is None
    if event.cat in GPU or (event.cat in HOST and event.name.startswith(_NEEDED)):
        return False
    return any(not _sensible(*row) for row in _limits(event))


def needed(event: Unreadable) -> bool:
    """Tell whether a step cannot be known without an event that cannot be read."""
    if event.ph not in ("X", "") or event.cat in _COPIES:
        return False
    return event.cat in GPU or (event.cat in HOST and event.name.startswith(_NEEDED))


def may_be_read(event: Unreadable) -> bool:
    """Tell whether an event that cannot be read may be of a category that is read."""
    return not event.cat or event.cat in READ


def _limits(event: WireEvent) -> tuple[tuple[float | None, float, float], ...]:
    """Time and duration with what is believed of them."""
    return (event.ts, -_LATEST_US, _LATEST_US), (event.dur, 0.0, _LONGEST_US)


def _sensible(value: float | None, least: float, most: float) -> bool:
    return value is not None and least <= value <= most


def times(event: WireEvent, source: str, i: int) -> tuple[float, float]:
    """Begin and end of an event, microseconds; FormatError where they are not to be believed."""
    for key, (value, least, most) in zip(("ts", "dur"), _limits(event), strict=True):
        if not _sensible(value, least, most):
            rule = f"{value} is not a number of microseconds from {least:g} to {most:g} ('{event.name}')"
            raise FormatError(source, f"traceEvents[{i}].{key}", f"{rule}; record the trace again")
    assert event.ts is not None
    assert event.dur is not None
    return event.ts, event.ts + event.dur
