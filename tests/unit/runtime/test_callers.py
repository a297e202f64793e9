"""The line of a script from which something was reached, and the function that it called there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.runtime.lazy.gradient import PendingGradient
from hocket.runtime.observe.callers import place_in_script

CALLS = {
    "torch.nn.utils.clip_grad_norm_([p], 1.0)": "clip_grad_norm_",
    "p.grad.norm()": "norm",
    "p.grad.mul_(2.0)": "",  # no function of Python's
    "copy.deepcopy(p.grad)": "deepcopy",
    "(lambda: p.grad.norm())()": "norm",
}


def places(script: Path, line: str) -> list[str]:
    """The places that ``line``, the fourth of ``script``, waits for a gradient at."""
    script.write_text(f"import copy\nimport torch\n\n{line}\n")
    found: list[str] = []
    p = torch.nn.Parameter(torch.ones(3))

    def wait() -> None:
        def meet() -> None:
            found.append(place_in_script())

        meet()

    p.grad = PendingGradient(torch.ones(3), wait)
    names: dict[str, Any] = {"__name__": "__main__", "p": p}
    exec(compile(script.read_text(), str(script), "exec"), names)
    return found


@pytest.mark.parametrize("line", CALLS)
def test_a_script_s_own_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    # What waits belongs to the runtime.
    monkeypatch.setitem(globals(), "__name__", "hocket.runtime.tests")
    monkeypatch.chdir(tmp_path)
    called = f" ({CALLS[line]})" if CALLS[line] else ""
    assert set(places(tmp_path / "train.py", line)) == {f"train.py:4{called}"}


def test_a_script_elsewhere_has_its_whole_path_and_a_package_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "__name__", "hocket.runtime.tests")
    script = tmp_path / "train.py"
    assert places(script, "p.grad.norm()")[0] == f"{script}:4 (norm)"
    packages = tmp_path / "lib" / "site-packages" / "loops"
    packages.mkdir(parents=True)
    assert places(packages / "fit.py", "p.grad.norm()")[0] == "loops/fit.py:4 (norm)"
