"""JSON documents, strictly: whole files or none, and one line for whatever is wrong with one."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import zstandard

from hocket.errors import FormatError, HocketError
from hocket.signals import uninterrupted

T = TypeVar("T")

# Bytes that a compressed file may hold: more than any trace of some steps, less than would fill a machine.
_LARGEST_BYTES = 4 << 30
_PIECE_BYTES = 1 << 20
_PACKED = (".zst", ".gz")
_ZSTD_BYTES = 1 << 12  # a block of 4 bytes can hold 128 KiB
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STANDARD_OUTPUT = 1
_OPEN_FILES = {"-": _STANDARD_OUTPUT, "/dev/stdout": _STANDARD_OUTPUT, "/dev/stderr": 2}
USES = {
    "hocket.step/1": "hocket plan, simulate, tune and predict take it as it is",
    "hocket.plan/1": "hocket simulate, predict, bench and train take it as --plan",
    "hocket.network/1": "give it as --network",
    "hocket.device/1": "give it as --device-file of hocket profile",
    "hocket.timeline/1": "hocket compare, report and export perfetto take it",
    "hocket.jobs/1": "hocket cluster simulate and run take it",
}
"""Our formats and the use of their files, for a message where one was given in another one's place."""
_NUMBERED = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})", re.ASCII)


def read_bytes(path: str | Path, written_by: str = "") -> bytes:
    """The bytes of a file, decompressed where its name ends in ``.zst`` or ``.gz``; ``-``: standard input.

    ``written_by``: which commands write such files, for the message of one that is missing.
    """
    if str(path).endswith(_PACKED):
        return _limited(read_pieces(path, written_by), str(path))
    with _reading(path, written_by), _opened(path) as file:
        return file.read()


def read_pieces(path: str | Path, written_by: str = "") -> Iterator[bytes]:
    """The bytes that :func:`read_bytes` returns, a piece at a time and however many they are."""
    with _reading(path, written_by), _opened(path) as file:
        packed = iter(lambda: file.read(_PIECE_BYTES), b"")
        if str(path).endswith(".zst"):
            yield from _unzstd(packed, str(path))
        elif str(path).endswith(".gz"):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield from iter(lambda: unpacked.read(_PIECE_BYTES), b"")
        else:
            yield from packed


@contextlib.contextmanager
def _reading(path: str | Path, written_by: str = "") -> Iterator[None]:
    """Whatever keeps a file from being read, as a FormatError."""
    source = str(path)
    try:
        yield
    except zstandard.ZstdError as error:
        raise FormatError(source, "", f"is not a zstd file: {error}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(source, "", f"is not a gzip file: {error}") from None
    except FileNotFoundError as error:
        fix = f"; {written_by}" if written_by else ""
        raise FormatError(source, "", f"cannot be read: {error.strerror}{fix}") from None
    except OSError as error:
        raise FormatError(source, "", f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a null byte in a path that a file names
        raise FormatError(source, "", f"cannot be read: {error}") from None


def _opened(path: str | Path) -> BinaryIO:
    return os.fdopen(os.dup(0), "rb") if str(path) == "-" else Path(path).open("rb")


def _unzstd(parts: Iterable[bytes], source: str) -> Iterator[bytes]:
    """The content of a zstd file, in pieces of at most 32 KiB for each of its bytes."""
    frame = None
    for part in parts:
        at = 0
        while at < len(part):
            if frame is None or frame.eof:  # frame by frame, as parallel compressors write them
                frame = zstandard.ZstdDecompressor().decompressobj()
            piece = part[at : at + _ZSTD_BYTES]
            yield frame.decompress(piece)
            at += len(piece) - len(frame.unused_data)
    if frame is None or not frame.eof:
        raise FormatError(source, "", "is not a whole zstd file: it is cut")


def _limited(parts: Iterable[bytes], source: str) -> bytes:
    """All ``parts`` in one, unless they are so many that a small file would fill a machine."""
    kept, size = [], 0
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > _LARGEST_BYTES:
            rule = f"holds more than {_LARGEST_BYTES >> 20} MiB; decompress it, or record fewer steps"
            raise FormatError(source, "", rule)
    return b"".join(kept)


def read_document(path: str | Path) -> Any:
    """The plain data of a JSON file whose type shows only once it is read; numbers in it are finite.

    Raises
    ------
    FormatError
        Naming the file and, for a number or a text that is none, the field.
    """
    return parse(read_bytes(path), str(path))


def decode(data: bytes, type_: type[T], expected_format: str, source: str) -> T:
    """Decode a JSON document of ``expected_format`` into ``type_``, refusing it in one line otherwise."""
    data = data.removeprefix(codecs.BOM_UTF8)
    with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        value = msgspec.json.decode(data, type=type_)
        if _SURROGATE.search(data):
            msgspec.json.encode(value)  # fails where half of a surrogate pair stands alone
        return value
    # Once more, slowly, for the line that says what is wrong. The format comes first: a plan read as a step
    # misses fields that it never had.
    return convert_document(parse(data, source), type_, source, expected_format)


def convert_document(document: Any, type_: type[T], source: str, expected_format: str | None = None) -> T:
    """Plain data as ``type_``; FormatError names ``source``, the field and the rule."""
    if expected_format is not None and isinstance(document, dict):
        found = document.get("format", expected_format)
        if found != expected_format:
            needed = f"is not '{expected_format}', needed here" if expected_format else "is ours already"
            use = f"; {USES[found]}" if isinstance(found, str) and found in USES else ""
            raise FormatError(source, "format", f"{found!r} {needed}{use}")
        if expected_format and "format" not in document and "traceEvents" in document:
            raise FormatError(source, "", "is a profiler's trace; hocket import kineto makes a step of it")
    try:
        return msgspec.convert(document, type=type_)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `")
        field = path.rstrip("`").removeprefix("$").removeprefix(".")
        raise FormatError(source, field, rule[:1].lower() + rule[1:]) from None


def parse(data: bytes, source: str) -> Any:
    """Decode a JSON document, refusing what is none in one line."""
    data = data.removeprefix(codecs.BOM_UTF8)  # readers may ignore it (RFC 8259)
    try:
        document = msgspec.json.decode(data)
        if _SURROGATE.search(data):
            _refuse_what_is_no_value(document, source)
        return document
    except RecursionError:
        raise FormatError(source, "", "is not JSON that we read: it is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if source.endswith(".py"):
            made = f"hocket profile {source}:FUNCTION -o step.json"
            raise FormatError(source, "", f"is not JSON but a script; it becomes a step by {made}") from None
        # NaN and Infinity are no JSON, but Python writes them: read them so that the field can be named.
        with contextlib.suppress(ValueError, RecursionError):
            _refuse_what_is_no_value(json.loads(data), source)
        raise FormatError(source, "", f"is not JSON: {error}") from None


def _refuse_what_is_no_value(document: Any, source: str) -> None:
    """Refuse numbers that are not finite and texts that no file can hold (lone surrogates)."""
    for field, value in _leaves(document, ""):
        if isinstance(value, float) and not abs(value) < float("inf"):
            raise FormatError(source, field, f"{value} is not a finite number")
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise FormatError(source, field, f"{value!a} is not a text: half of a surrogate pair is alone")


def _leaves(value: Any, field: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield field, key
            yield from _leaves(inner, f"{field}.{key}".lstrip("."))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _leaves(inner, f"{field}[{i}]")
    else:
        yield field, value


def encode(document: Any) -> bytes:
    """``document`` as JSON.

    Raises
    ------
    HocketError
        For a text that is not UTF-8, as the name of a file may be.
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise HocketError(f"{error.object!a} is not UTF-8, and JSON is; rename the file") from None


def write_json(document: Any, path: str | Path) -> None:
    """Write ``document`` as JSON (compressed for ``.zst`` and ``.gz``), whole or not at all."""
    write_bytes(encode(document), path)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write what :func:`read_bytes` reads: compressed for ``.zst`` and ``.gz``, whole or not at all."""
    if str(path).endswith(".zst"):
        data = zstandard.ZstdCompressor().compress(data)
    elif str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    write_whole(data, path)


def write_whole(data: bytes, path: str | Path) -> None:
    """Put ``data`` at ``path`` by renaming a finished neighbour, so that no reader sees half of it.

    A link is followed; what is no regular file (a pipe, a terminal, /dev/null) is written to as it is, and so
    is what is open already (``-`` and /dev/stdout, /dev/fd/3).
    """
    check_writable(path)
    descriptor = _open_file(path)
    if descriptor == _STANDARD_OUTPUT:
        write_output(data)
        return
    try:
        given = Path(path)
        if descriptor is not None:
            # Not by its path: behind a shell's > and >> there may be a file, which others write to as well.
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(data)
        # Asked before links are followed: a pipe may have no path of its own.
        elif given.exists() and not given.is_file():
            given.write_bytes(data)
        else:
            _replace(_destination(given), data)
    except OSError as error:
        raise HocketError(f"{path}: cannot be written: {error.strerror or error}") from None


def _destination(path: Path) -> Path:
    """The file that ``path`` is or leads to, there or not yet; OSError where links go in a circle."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # from Python 3.13 on, resolve() returns a circle's link itself
    return path.resolve()


def write_output(data: bytes) -> None:
    """Write to standard output, behind what was printed there."""
    check_output()
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def check_output() -> None:
    """Refuse a standard output that is closed."""
    if sys.stdout is None:
        raise HocketError("standard output is closed; there is nowhere to print the result")


def is_standard_output(path: str | Path) -> bool:
    """True if an output path stands for standard output."""
    return _open_file(path) == _STANDARD_OUTPUT


def _open_file(path: str | Path) -> int | None:
    """The number of the file, open already, that an output path stands for."""
    if (numbered := _NUMBERED.fullmatch(str(path))) is not None:
        return int(numbered[1])
    return _OPEN_FILES.get(str(path))


def _replace(target: Path, data: bytes) -> None:
    # An interrupt between creating the neighbour and renaming it would leave it lying there.
    with uninterrupted():
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".hocket-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask)
            os.replace(temporary, target)
            temporary = None
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)


def is_replaced(path: str | Path) -> bool:
    """Tell whether a file is there, and not empty, that writing to ``path`` puts another one in place of."""
    target = Path(path)
    return _open_file(path) is None and target.is_file() and target.stat().st_size > 0


def check_writable(path: str | Path, *inputs: str | Path) -> None:
    """Refuse an output path that cannot be written or is also an input, before the work for it is done."""
    target, descriptor = Path(path), _open_file(path)
    try:
        if descriptor == _STANDARD_OUTPUT:
            check_output()
            return
        if descriptor is not None:
            os.fstat(descriptor)
            return
        if target.is_dir():
            raise HocketError(f"{target}: is a folder; name a file in it")
        folder = _destination(target).parent
        if not folder.is_dir():
            raise HocketError(f"{target}: the folder '{folder}' does not exist; create it first")
        # A file is replaced by a new one beside it; what is none is written to as it is.
        places = [target] if target.exists() else []
        if not places or target.is_file():
            places.append(folder)
        for place in places:
            if not os.access(place, os.W_OK):
                rule = f"'{place}' does not permit it; choose another place or change its permissions"
                raise HocketError(f"{target}: cannot be written: {rule}")
        for source in inputs:
            if target.exists() and Path(source).exists() and target.samefile(source):
                raise HocketError(f"{target}: is also an input; name another output")
    except OSError as error:
        raise HocketError(f"{target}: cannot be written: {error.strerror or error}") from None
