"""The README's code runs as it stands, in the order in which a newcomer would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


# Kernels may have to be compiled first.
@pytest.mark.timeout(300)
def test_the_readmes_commands_and_programs_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|sh)\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert [language for language, _ in blocks] == ["sh", "python", "sh", "python"]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }

    def run(*command: str) -> str:
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    (_, cluster), (_, factory), (_, commands), (_, program) = blocks
    run("sh", "-euc", cluster)
    assert "lwf-1 / psrsf" in (tmp_path / "cluster.html").read_text()
    name = re.match(r"# (\w+\.py)\n", factory)
    assert name is not None
    (tmp_path / name[1]).write_text(factory)
    run("sh", "-euc", commands)
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
    assert "no order beats" in run(sys.executable, "-c", program)
