"""The events of a Chrome trace as they are written, and their texts made into values that events share."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from hocket.interop.kineto.events import Args

_NOTHING = msgspec.Raw(b"")


class WireArgs(msgspec.Struct, frozen=True, gc=False):
    """Details that an event gives of itself, as :class:`Args`, whatever they are; shapes as yet as text.

    Beside these: ``function_id`` of an operator; ``sequence``, which ties a forward operator to its backward
    one; of the GPU and the runtime ``correlation`` and ``stream`` (Intel's: ``queue``), ``bandwidth`` (None
    where it was no number), ``graph_node`` if a CUDA graph launched it; of waits of a stream the last three.
    """

    function_id: Any = msgspec.field(name="Record function id", default=None)
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    dims_of_1_8: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    correlation: Any = None
    stream: Any = None
    queue: Any = msgspec.field(name="sycl queue", default=None)
    copied_bytes: Any = msgspec.field(name="bytes", default=None)
    bandwidth: Any = msgspec.field(name="memory bandwidth (GB/s)", default=msgspec.UNSET)
    graph_node: Any = msgspec.field(name="graph node id", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Description", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    sync_kind: Any = msgspec.field(name="cuda_sync_kind", default=None)
    on_stream: Any = msgspec.field(name="wait_on_stream", default=None)
    recorded_by: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)


class WireEvent(msgspec.Struct, frozen=True, gc=False):
    """An event; times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: WireArgs = WireArgs()


class SharedValues:
    """Values that many events have alike, each kept once."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._args: dict[Any, Args] = {}
        self._tensors: dict[bytes, Any] = {}

    def value(self, value: Any) -> Any:
        """``value`` as it was first seen; it is hashable."""
        return self._values.setdefault(value, value)

    def args(self, wire: WireArgs) -> Args:
        """The part that is kept of an event's details."""
        shapes = bytes(wire.dims) or bytes(wire.dims_of_1_8)
        types = bytes(wire.types)
        rest = (
            *(wire.copied_bytes, wire.collective, wire.elements, wire.out_elements, wire.dtype),
            *(wire.group, wire.group_name, wire.group_size),
        )
        key = (shapes, types, *map(_hashable, rest))
        found = self._args.get(key)
        if found is None:
            found = self._args[key] = Args(self._described(shapes), self._described(types), *rest)
        return found

    def _described(self, text: bytes) -> Any:
        if not text:
            return None
        if text not in self._tensors:
            self._tensors[text] = None
            # Texts within may be wrong, which shows only here.
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                self._tensors[text] = msgspec.json.decode(text)
        return self._tensors[text]


def _hashable(value: Any) -> Any:
    # 1, 1.0 and True are equal, and so would be their keys.
    return (type(value), value) if isinstance(value, int | float | str) else repr(value)
