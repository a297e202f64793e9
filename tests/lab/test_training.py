"""Training on the nodes of a lab: a long one keeps its size."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hocket.lab import Lab
from tests.multiprocess.failure_cases import grown
from tests.multiprocess.launch import ROOT, command

pytestmark = pytest.mark.long


def test_a_thousand_steps_leak_neither_memory_nor_handles(two: Lab, tmp_path: Path) -> None:
    argv = command("tests.multiprocess.failure_cases:many_steps", tmp_path, {"steps": 1000})
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = two.run_all(argv, timeout_s=300, env={"PYTHONPATH": path}, own_processors=True)
    assert [rank.returncode for rank in ran] == [0, 0], ran
    for rank in range(2):
        moments = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(moments) == 5
        assert grown(moments) == {}
