"""The code of the README and of the documentation's pages runs as it stands, in the order of each page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
BLOCK = re.compile(r"^```(python|sh)([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text())]


def run_blocks(page: Path, folder: Path) -> list[str]:
    """What the page's blocks print, run in ``folder``; one that begins with a file's name is that file."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    printed = []
    for language, info, code in BLOCK.findall(page.read_text()):
        name = re.match(r"# (\w+\.py)\n", code)
        if "as root" in info and (os.geteuid() or not shutil.which("tc")):
            continue
        if language == "python" and name is not None:
            (folder / name[1]).write_text(code)
            continue
        command = [sys.executable, "-c", code] if language == "python" else ["bash", "-euc", code]
        used = dict(environment)
        if "as root" in info:  # a node's one interface is not the loopback
            del used["GLOO_SOCKET_IFNAME"]
        ran = subprocess.run(
            command, cwd=folder, env=used, capture_output=True, text=True, timeout=250, check=False
        )
        assert ran.returncode == 0, f"{page.name}:\n{code}\n{ran.stdout}\n{ran.stderr}"
        printed.append(ran.stdout)
    return printed


# Kernels may have to be compiled first.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readmes_commands_and_programs_run(tmp_path: Path) -> None:
    _, _, program = run_blocks(ROOT / "README.md", tmp_path)
    assert "lwf-1 / psrsf" in (tmp_path / "cluster.html").read_text()
    assert 500_000 < (tmp_path / "report.html").stat().st_size < 1_000_000
    assert "no order beats" in program


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    run_blocks(page, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_pictures_are_what_the_simulator_draws_today() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "docs" / "draw" / "make.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
