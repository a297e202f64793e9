"""The end of the interpreter, which waits for threads of gloo's that may want something of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.runtime.transfers.gloo_threads import _are_idle


@pytest.mark.parametrize(
    ("threads", "idle"),
    [
        ({}, True),
        ({"1": "1 (python) R 0 1", "2": "2 (pt_gloo_runloop) S 1 1"}, True),
        ({"1": "1 (python) S 0 1", "2": "2 (pt_gloo_runloop) R 1 1"}, False),
        ({"2": "2 (pt_gloo_runloop) S 1 1", "3": "3 (pt_gloo_runloop) D 1 1"}, False),
        ({"1": "1 (a (pt_gloo_runloop) R) R 0 1"}, True),
    ],
)
def test_gloos_threads_are_idle_where_all_of_them_sleep(
    tmp_path: Path, threads: dict[str, str], idle: bool
) -> None:
    for number, stat in threads.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "stat").write_text(f"{stat} 0 0\n")
    assert _are_idle(tmp_path) == idle
