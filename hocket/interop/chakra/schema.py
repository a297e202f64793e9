"""The messages of Chakra execution traces: the fields of MLCommons' ``et_def.proto`` and their numbers.

They are built when this module is imported, in a pool of their own, so that they stand beside those of an
installed ``chakra`` package. A file holds a ``GlobalMetadata`` and then nodes, each behind its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from hocket.document import USES
from hocket.errors import FormatError, HocketError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
except ImportError:
    raise HocketError(
        "Chakra traces need protobuf; install it: pip install '.[chakra]' in a clone of Hocket"
    ) from None

_BEGINNING_BYTES = 4096
_TAR, _TAR_PLACE = b"ustar", 257
_PACKAGE = "ChakraProtoMsg"
_Field = descriptor_pb2.FieldDescriptorProto

# The kinds of an attribute's value, in the order of their numbers: of each a single one and a list.
_KINDS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
    *("sfixed32", "sfixed64", "bool", "string", "bytes"),
)
_FIRST_VALUE = 3
_LONGEST_VARINT = 10


class NodeType(IntEnum):
    """The kind of a node; the order of the schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """The ``comm_type`` of a COMM_COLL node."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


def _add_field(
    message: Any, name: str, number: int, kind: str, *, repeated: bool = False, one_of: int | None = None
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if kind in _KINDS:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    if one_of is not None:
        field.oneof_index = one_of


def _schema() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=_PACKAGE, syntax="proto3")
    for kind in _KINDS:
        _add_field(file.message_type.add(name=f"{kind.capitalize()}List"), "values", 1, kind, repeated=True)
    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    _add_field(attribute, "name", 1, "string")
    _add_field(attribute, "doc_string", 2, "string")
    for i, kind in enumerate(_KINDS):
        number = _FIRST_VALUE + 2 * i
        _add_field(attribute, f"{kind}_val", number, kind, one_of=0)
        _add_field(attribute, f"{kind}_list", number + 1, f"{kind.capitalize()}List", one_of=0)
    metadata = file.message_type.add(name="GlobalMetadata")
    _add_field(metadata, "version", 1, "string")
    _add_field(metadata, "attr", 2, "AttributeProto", repeated=True)
    io = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add_field(io, name, number, "string")
    node = file.message_type.add(name="Node")
    _add_field(node, "id", 1, "uint64")
    _add_field(node, "name", 2, "string")
    # An enumeration on the wire is an int32: read as a number, one that is newer than this stays itself.
    _add_field(node, "type", 3, "int32")
    _add_field(node, "ctrl_deps", 4, "uint64", repeated=True)
    _add_field(node, "data_deps", 5, "uint64", repeated=True)
    _add_field(node, "start_time_micros", 6, "uint64")
    _add_field(node, "duration_micros", 7, "uint64")
    _add_field(node, "inputs", 8, "IOInfo")
    _add_field(node, "outputs", 9, "IOInfo")
    _add_field(node, "attr", 10, "AttributeProto", repeated=True)
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_schema())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


GlobalMetadata = _message("GlobalMetadata")
Node = _message("Node")


def attributes(message: Any) -> dict[str, Any]:
    """A message's attributes by name, as plain values and lists."""
    found: dict[str, Any] = {}
    for attribute in message.attr:
        which = attribute.WhichOneof("value")
        if which is not None:
            value = getattr(attribute, which)
            found[attribute.name] = list(value.values) if which.endswith("_list") else value
    return found


def data_dependencies(node: Any, place: dict[int, int], source: str) -> list[int]:
    """Places of a node's data dependencies, each once."""
    for id_ in node.data_deps:
        if id_ not in place:
            rule = f"'{node.name}' depends on {id_}, which is no node's id"
            raise FormatError(source, f"node {node.id}", rule)
    return [place[id_] for id_ in dict.fromkeys(node.data_deps)]


def set_attribute(message: Any, name: str, kind: str, value: Any) -> None:
    """Add an attribute; ``kind`` is a field of AttributeProto, such as ``int64_val`` or ``string_list``."""
    attribute = message.attr.add(name=name)
    if kind.endswith("_list"):
        # Naming the field makes an empty list one too.
        getattr(attribute, kind).SetInParent()
        getattr(attribute, kind).values.extend(value)
    else:
        setattr(attribute, kind, value)


def write_messages(messages: list[Any]) -> bytes:
    """Messages, each behind its length."""
    parts = []
    for message in messages:
        body = message.SerializeToString()
        parts += [_varint(len(body)), body]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def read_messages(data: bytes, source: str) -> tuple[Any, list[Any]]:
    """A file's metadata and its nodes.

    Raises
    ------
    FormatError
        Naming the file and the message that cannot be read; for JSON, as PyTorch writes its ExecutionTrace.
    """
    _check_no_json(data, source)
    bodies = _bodies(data, source)
    metadata = _parsed(next(bodies, b""), GlobalMetadata(), source, "metadata")
    return metadata, [_parsed(body, Node(), source, f"node {i}") for i, body in enumerate(bodies)]


def _check_no_json(data: bytes, source: str) -> None:
    """Refuse the other traces of PyTorch, which are JSON, with the command that reads them, and archives."""
    if data[_TAR_PLACE : _TAR_PLACE + len(_TAR)] == _TAR:
        raise FormatError(source, "", "is a tar archive; unpack it, and give a trace in it")
    if data[:_BEGINNING_BYTES].lstrip()[:1] not in (b"{", b"["):
        return
    ours = next((name for name in USES if b'"%s"' % name.encode() in data[:_BEGINNING_BYTES]), None)
    if ours is not None:
        raise FormatError(source, "format", f"'{ours}' is ours already; {USES[ours]}")
    if b'"traceEvents"' in data:
        raise FormatError(source, "$", "is a Kineto trace, which hocket import kineto reads")
    if b'"nodes"' in data:
        rule = "is an ExecutionTrace of PyTorch, which goes with its Kineto trace"
        raise FormatError(source, "$", f"{rule}: hocket import kineto TRACE --execution-trace FILE")
    if data.lstrip()[:1] == b"[" or b'"ph"' in data[:_BEGINNING_BYTES]:
        raise FormatError(
            source, "$", "is JSON, no Chakra trace; hocket import kineto reads torch.profiler's"
        )


def _parsed(body: bytes, message: Any, source: str, what: str) -> Any:
    try:
        message.ParseFromString(body)
    except DecodeError:
        raise FormatError(source, what, "is no message of the Chakra schema (et_def.proto)") from None
    return message


def _bodies(data: bytes, source: str) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        begin, size = place, 0
        for shift in range(0, 7 * _LONGEST_VARINT, 7):
            if place >= len(data):
                raise FormatError(source, f"byte {begin}", "the file ends inside of a length: it is cut")
            byte = data[place]
            place += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if size > len(data) - place:
            rule = f"a message of {size} bytes begins where {len(data) - place} are left: not a whole trace"
            raise FormatError(source, f"byte {begin}", rule)
        yield data[place : place + size]
        place += size
