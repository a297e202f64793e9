"""Kernels: what an older version of the package has left on disk is compiled anew, and compiling is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from hocket.kernel import is_compiling

ROOT = Path(__file__).parents[2]
KERNELS = "from hocket.kernel import kernel\n\n\n@kernel\ndef doubled(shape):\n    return 2 * shape.width\n"


def run_with(name: str, folder: Path) -> str:
    """What a process prints that gives the kernel a class of that name."""
    (folder / "shapes.py").write_text(
        f"from typing import NamedTuple\n\n\nclass {name}(NamedTuple):\n    width: float\n"
    )
    code = f"from kernels import doubled; from shapes import {name}; print(doubled({name}(1.5)))"
    paths = os.pathsep.join([str(folder), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_kernel_that_was_kept_for_a_class_of_another_name_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    assert run_with("Shape", tmp_path) == "3.0"
    assert list((tmp_path / "__pycache__").glob("*.nbi"))
    assert run_with("Rectangle", tmp_path) == "3.0"
    assert run_with("Rectangle", tmp_path) == "3.0"


def test_a_kernel_is_said_to_be_compiled_only_while_it_is() -> None:
    noted = []

    class Noting(event.Listener):  # type: ignore[misc]
        def on_start(self, _: Any) -> None:
            noted.append(is_compiling())

        def on_end(self, _: Any) -> None: ...

    twice = numba.njit(lambda value: 2 * value)
    with event.install_listener("numba:compile", Noting()):
        assert not is_compiling()
        assert twice(2) + twice(3) == 10
    assert noted == [True]
    assert not is_compiling()
