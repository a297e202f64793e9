"""Which loaded libraries take tensors from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hocket.runtime.lazy.extensions import Extensions, takes_tensors


@pytest.mark.parametrize(
    ("content", "takes"),
    [
        (b"\x7fELF\0_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb\0", True),
        (b"\x7fELF\0THPVariableClass\0libtorch_python.so\0", True),
        (b"\x7fELF\0libtorch_python.so\0_ZN5torch7LibraryC1E\0", False),
        (b"", False),
    ],
)
def test_an_extension_is_told_by_what_it_calls(tmp_path: Path, content: bytes, takes: bool) -> None:
    library = tmp_path / "probe.so"
    library.write_bytes(content)
    assert takes_tensors(library) is takes


def test_torchs_own_libraries_are_none() -> None:
    (python,) = (Path(torch.__file__).parent / "lib").glob("libtorch_python.*")
    assert not takes_tensors(python)


def test_a_library_is_looked_at_once_it_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "probe.so"
    library.write_bytes(b"THPVariable")
    loaded, loads = {"", "/no/such.so"}, [1]
    extensions = Extensions()
    monkeypatch.setattr(extensions, "_each", print)
    monkeypatch.setattr(extensions, "_count", lambda: loads[0])
    monkeypatch.setattr(extensions, "_paths", lambda: set(loaded))
    assert extensions.names() == []
    loaded.add(str(library))
    assert extensions.names() == []  # as long as nothing was loaded
    loads[0] += 1
    assert extensions.names() == ["probe.so"]


def test_this_process_is_looked_at() -> None:
    extensions = Extensions()
    assert extensions.names() == []
    assert any("libtorch_cpu" in path for path in extensions._seen_paths)
