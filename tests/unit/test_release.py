"""What is shipped: a wheel that an empty environment can use, with all that is read at run time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import hocket

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=550, check=False, env=kept | environment
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source distribution, made of a copy; the wheel is made of the source distribution."""
    folder = tmp_path_factory.mktemp("release")
    others = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "site", "tests")
    shutil.copytree(ROOT, folder / "source", ignore=others)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, folder / "source")
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def versioned_files() -> set[str]:
    """What is in the package's folder, but for what Python compiles."""
    files = (path for path in (ROOT / "hocket").rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_wheel_and_source_hold_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    wheel, source = built
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in in_wheel if ".dist-info/" not in name} == versioned_files()
    assert "hocket/py.typed" in in_wheel
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert versioned_files() <= names
    assert {"README.md", "LICENSE", "pyproject.toml"} <= names


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_empty_environment_simulates_and_reports(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Everything but torch: what needs it says how to install it."""
    venv.create(tmp_path / "venv", with_pip=True)
    python, command = tmp_path / "venv/bin/python", tmp_path / "venv/bin/hocket"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, built[0], PIP_NO_INPUT="1")
    assert run(command, "--version") == f"hocket {hocket.__version__}\n"
    step, result, page = (
        ROOT / "tests/golden/branches.step.json",
        tmp_path / "tic.json",
        tmp_path / "page.html",
    )
    result.write_text(run(command, "simulate", step, "--policy", "tic", "--workers", "2", "--json"))
    run(command, "report", result, "-o", page)
    assert 500_000 < page.stat().st_size < 1_000_000
    refused = subprocess.run(
        [command, "profile", "alexnet_v2", "-o", tmp_path / "step.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert "pip install '.[torch]' in a clone of Hocket" in refused.stderr


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == hocket.__version__
    assert f"## {hocket.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {hocket.__version__}\n" in (ROOT / "CITATION.cff").read_text()


COMMAND = Path(sys.executable).parent / "hocket"


def test_a_shell_completes_commands_and_options() -> None:
    asked = {"_HOCKET_COMPLETE": "complete_bash", "_TYPER_COMPLETE_ARGS": "", "COMP_CWORD": "1"}
    commands = run(COMMAND, COMP_WORDS="hocket ", **asked).split()
    assert {"profile", "plan", "simulate", "predict", "tune", "train", "cluster"} <= set(commands)
    options = run(COMMAND, COMP_WORDS="hocket plan --po", **asked | {"COMP_CWORD": "2"}).split()
    assert options == ["--policy"]


def test_completion_is_installed_for_a_shell(tmp_path: Path) -> None:
    script = run(COMMAND, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert re.search(r"complete .* hocket\b", script)
    said = run(
        COMMAND,
        "--install-completion",
        "bash",
        HOME=str(tmp_path),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert "completion installed" in said
    assert "hocket" in (tmp_path / ".bashrc").read_text()
