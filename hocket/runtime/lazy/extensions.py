"""Extensions of Python built on torch that this process has loaded.

A parameter that such an extension is handed it may read by its address: nothing asks the parameter first.
Libraries of operators (``torch.ops``) are none of them: their operators are called by way of torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_ROOT = Path(torch.__file__).parent
# Symbols that an extension calls to have a tensor of a Python object, by itself or by pybind11.
_TAKES_TENSORS = (b"THPVariable", b"type_casterIN2at6TensorE")
_PIECE_BYTES = 1 << 20
_OVERLAP_BYTES = max(map(len, _TAKES_TENSORS)) - 1


class _Library(ctypes.Structure):
    """``struct dl_phdr_info`` of dl_iterate_phdr(3), on 64 bits."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("num_headers", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
    )


_Visit: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)


class Extensions:
    """Looks only at what was loaded since it last looked; on systems without dl_iterate_phdr it sees none."""

    def __init__(self) -> None:
        self._each: Callable[..., int] | None = getattr(ctypes.CDLL(None), "dl_iterate_phdr", None)
        self._loads = -1
        self._seen_paths: set[str] = set()
        self._names: list[str] = []

    def names(self) -> list[str]:
        """The file names of those that take tensors."""
        if self._each is not None and self._loads != (loads := self._count()):
            self._loads = loads
            for path in self._paths() - self._seen_paths:
                self._seen_paths.add(path)
                if takes_tensors(Path(path)):
                    self._names.append(Path(path).name)
        return self._names

    def _count(self) -> int:
        found = 0

        def first(library: Any, *_: object) -> int:
            nonlocal found
            found = library.contents.loads
            return 1

        assert self._each is not None
        self._each(_Visit(first), None)
        return found

    def _paths(self) -> set[str]:
        found: set[str] = set()

        def add(library: Any, *_: object) -> int:
            found.add((library.contents.name or b"").decode(errors="surrogateescape"))
            return 0

        assert self._each is not None
        self._each(_Visit(add), None)
        return found


def takes_tensors(library: Path) -> bool:
    """Tell whether a shared library that is not torch's own takes tensors from Python."""
    if _ROOT in library.parents or not library.is_file():
        return False
    # Piece by piece: some have hundreds of megabytes, which would count as memory of the process if mapped.
    content = b""
    with library.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            content = content[-_OVERLAP_BYTES:] + piece
            if any(content.find(call) >= 0 for call in _TAKES_TENSORS):
                return True
    return False


_LOADED = Extensions()


def torch_extensions() -> list[str]:
    """The file names of the extensions built on torch in this process."""
    return _LOADED.names()
