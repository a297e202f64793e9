"""Dependencies in a traced step: order on streams, and the waits that were recorded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable

from hocket.graph import Phase
from hocket.interop.kineto.events import Trace
from hocket.interop.kineto.traced_operations import TracedStep

Add = Callable[[int | None, int | None], None]

# Host and GPU clocks are aligned to about this, microseconds.
_CLOCKS_APART_US = 1.0


class _Launches:
    """The operations of forward and backward by stream, in the order of their launch."""

    def __init__(self, step: TracedStep) -> None:
        rows = defaultdict(list)
        for i, operation in enumerate(step.operations):
            if operation.phase != Phase.UPDATE:
                rows[operation.gpu.stream].append((operation.gpu.call.start_us, i))
        self._rows = {stream: sorted(own) for stream, own in rows.items()}
        self.streams = list(self._rows)

    def last(self, stream: int, before_us: float) -> int | None:
        """The last one launched before."""
        rows = self._rows.get(stream, [])
        k = bisect_left(rows, (before_us, -1)) - 1
        return rows[k][1] if k >= 0 else None

    def first(self, stream: int, after_us: float) -> int | None:
        """The first one launched after."""
        rows = self._rows.get(stream, [])
        k = bisect_right(rows, (after_us, 2**62))
        return rows[k][1] if k < len(rows) else None


def stream_inputs(trace: Trace, step: TracedStep) -> dict[int, set[int]]:
    """For each operation of forward and backward the earlier ones that must have ended.

    An edge always leads from what started earlier on the GPU, so a trace with wrong times makes no cycle.
    """
    inputs: dict[int, set[int]] = {}
    before: dict[int, int] = {}
    launches = _Launches(step)

    def add(earlier: int | None, later: int | None) -> None:
        if earlier is not None and later is not None and earlier < later:
            inputs[later].add(earlier)

    for i, operation in enumerate(step.operations):
        if operation.phase == Phase.UPDATE:
            continue
        inputs[i] = set()
        add(before.get(operation.gpu.stream), i)
        before[operation.gpu.stream] = i
    for wait in trace.stream_waits:
        if step.begin_us <= wait.call.start_us < step.end_us:
            add(
                launches.last(wait.on_stream, wait.recorded_by.start_us),
                launches.first(wait.stream, wait.call.start_us),
            )
    if len(launches.streams) > 1:
        _add_host_waits(trace, step, launches, add)
        _add_collectives(step, launches, add)
    return inputs


def _add_host_waits(trace: Trace, step: TracedStep, launches: _Launches, add: Add) -> None:
    """Make launches after the host waited for the GPU follow the operations that had ended by then."""
    for call in trace.waits:
        if not step.begin_us <= call.start_us < step.end_us:
            continue
        ended = []
        for stream in launches.streams:
            i = launches.last(stream, call.start_us)
            if i is not None and step.operations[i].gpu.end_us <= call.end_us + _CLOCKS_APART_US:
                ended.append(i)
        for stream in launches.streams:
            following = launches.first(stream, call.end_us)
            for i in ended:
                add(i, following)


def _add_collectives(step: TracedStep, launches: _Launches, add: Add) -> None:
    """Process groups make a collective wait for what was launched before it on the current stream.

    Launches after it are taken to wait for it, as they do in synchronous calls.
    """
    streams = Counter(operation.gpu.stream for operation in step.operations)
    computing = streams.most_common(1)[0][0]
    for i, operation in enumerate(step.operations):
        if operation.collective and operation.phase != Phase.UPDATE and operation.gpu.stream != computing:
            add(launches.last(computing, operation.gpu.call.start_us), i)
            add(i, launches.first(computing, operation.gpu.call.end_us))
