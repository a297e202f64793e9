"""The number of examples in a traced step: given, recorded in the trace, or guessed from shapes."""

from __future__ import annotations

from collections.abc import Iterator

from hocket.graph import Phase
from hocket.interop.kineto.events import HostSpan, Trace
from hocket.interop.kineto.tensors import ShapeOf, tensor_argument
from hocket.interop.kineto.traced_operations import TracedStep

# Their first argument is the table; what is looked up in it, the second, has the batch's extent.
_LOOKUPS = ("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag")
_DIGITS = 15  # of the largest batch size that is believed


def batch_size_of(
    trace: Trace, step: TracedStep, given: int | None, shape_of: ShapeOf, passes: int = 1
) -> tuple[int, list[str]]:
    """Examples in ``step``, and what is to be said of where that is from.

    ``shape_of``: an operator's first argument; ``passes``: how many micro-batches a step has.

    Raises
    ------
    FormatError
        When nothing is given and what the trace says is no number of examples.
    """
    if given is not None:
        return given, []
    if trace.batch_size is not None:
        together = f", of {passes} micro-batches together" if passes > 1 else ""
        return _recorded(trace), [f"batch size {_recorded(trace)}: as the trace says{together}"]
    for event, extents in _shapes(step, shape_of):
        if len(extents) > 1 and extents[0] > 0:
            times = f"{passes} times " if passes > 1 else ""
            return extents[0] * passes, [
                f"batch size {extents[0] * passes} is a guess, {times}the first extent of what {event.name} "
                "got: give --batch-size, or record it with profiler.add_metadata_json('batch_size', '32')"
            ]
    return 1, ["the batch size is not in the trace: a step counts as one example; give --batch-size"]


def _recorded(trace: Trace) -> int:
    """The trace's ``batch_size``, which profilers write as a number or as text."""
    said = trace.batch_size
    text = said.strip() if isinstance(said, str) else said
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < _DIGITS:
        text = int(text)
    if isinstance(text, bool) or not isinstance(text, int) or not 1 <= text < 10**_DIGITS:
        trace.refuse(f"{said!r} is not a number of examples; give --batch-size", "batch_size")
    return text


def _shapes(step: TracedStep, shape_of: ShapeOf) -> Iterator[tuple[HostSpan, list[int]]]:
    """The operators of the forward pass and the shapes that they got, in their order."""
    for operation in step.operations:
        if operation.phase != Phase.FORWARD or operation.gpu.call.host is None:
            continue
        chain = operation.gpu.call.host.chain()
        lookup = next((event for event in chain if event.name in _LOOKUPS), None)
        # Operators with a sequence number are those whose gradient is wanted: not the copy of a batch.
        asked = [event for event in chain if event.sequence is not None] if lookup is None else [lookup]
        for event in asked:
            tensor = shape_of(event) if lookup is None else tensor_argument(event, 1)
            if tensor is not None:
                yield event, tensor[0]
