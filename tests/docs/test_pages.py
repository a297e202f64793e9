"""The code of the README and of the documentation's pages runs as it stands, in the order of each page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from hocket.cli.main import app
from hocket.graph import load_plan
from hocket.lab import names, remove
from hocket.network import load_network

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
BLOCK = re.compile(r"^```(python|sh)([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text())]
ALGORITHMS = [page for page in PAGES if page.parent.name == "algorithms"]
MACHINES = ROOT / "docs" / "guides" / "machines.md"
CLUSTER = ROOT / "docs" / "guides" / "cluster.md"
APART = {*ALGORITHMS, MACHINES, CLUSTER}  # tests of their own run them


def run_blocks(page: Path, folder: Path) -> list[str]:
    """What the page's blocks print, run in ``folder``; one that begins with a file's name is that file.

    A command "in a shell of its own" stays beside those that follow, from its first line to the page's end.
    """
    (folder / "examples").symlink_to(ROOT / "examples")  # pages name them as from a clone
    with contextlib.ExitStack() as shells:
        return _run_blocks(page, folder, shells)


def _run_blocks(page: Path, folder: Path, shells: contextlib.ExitStack) -> list[str]:
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
        if "shell of its own" in info:
            shells.enter_context(staying(shlex.split(code), folder, used))
            continue
        ran = subprocess.run(
            command, cwd=folder, env=used, capture_output=True, text=True, timeout=500, check=False
        )
        assert ran.returncode == 0, f"{page.name}:\n{code}\n{ran.stdout}\n{ran.stderr}"
        printed.append(ran.stdout)
    return printed


@contextlib.contextmanager
def staying(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A command that has said its first line once it has loaded, until it is stopped by Ctrl-C."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,  # nothing that has come is hidden from select
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = b"loading"
        while line.startswith(b"loading"):  # said where that takes seconds, and nothing is ready yet
            assert select.select([process.stdout], [], [], 60)[0], f"{command} says nothing"
            line = process.stdout.readline()
        assert line
        yield
        assert process.poll() is None, f"{command} has ended by itself"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()


# Kernels may have to be compiled first.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readmes_commands_run(tmp_path: Path) -> None:
    (printed,) = run_blocks(ROOT / "README.md", tmp_path)
    assert "All-reduce at 1 Gbit/s" in printed
    assert "less than ddp" in printed
    assert json.loads((tmp_path / "step.tuned.plan.json").read_text())["format"] == "hocket.plan/1"


def test_the_readme_is_read_in_a_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_the_readme_and_the_questions_tell_the_same_ranges() -> None:
    told = [
        set(re.findall(r"\b[0-9.]+x to [0-9.]+x", (ROOT / page).read_text()))
        for page in ("README.md", "docs/faq.md")
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 6


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_commands_beside_the_doors_lack_nothing(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    commands = [code for row in rows for code in re.findall("`(hocket [^`]*)`", row)]
    assert commands
    for code in commands:
        if "." not in code and " -" not in code:
            continue  # a command's name alone
        command: Any = typer.main.get_command(app)
        context: Any = None
        words = shlex.split(code.partition(" >")[0])[1:]
        while isinstance(command, TyperGroup):
            context = typer.Context(command, parent=context, **command.context_settings)
            name, *words = words
            command = command.get_command(context, name)
        # A click error where an option or an argument is missing; --example-offers answers at once.
        with contextlib.suppress(typer.Exit):
            command.make_context(code, words, parent=context)


def test_pages_link_to_files_that_a_clone_has() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not missing


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [one for one in PAGES if one not in APART], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    run_blocks(page, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_machines_measure_train_and_keep_their_plan_as_the_guide_says(tmp_path: Path) -> None:
    if os.geteuid() or not shutil.which("tc"):
        pytest.skip("labs need root and tc")
    lab = f"two{os.getpid()}"  # so that two test runs on a machine do not remove each other's
    page = tmp_path / MACHINES.name
    text = MACHINES.read_text().replace("--name two", f"--name {lab}")
    # Once in turn, shortly measured, and fewer steps of a plan that is given: speeds are no matter here.
    text = text.replace("for turn in 1 2 3", "for turn in 1").replace("images.py 60", "images.py 30")
    text = text.replace("network measure -o", "network measure --largest 4MB --repeats 5 -o")
    page.write_text(
        re.sub(
            r"(--plan plan.json images.py)$|(--plan plan.json images.py)(?= &)", r"\1\2 20", text, flags=re.M
        )
    )
    try:
        _, measured, trained, again, compared, _ = run_blocks(page, tmp_path)
    finally:
        if lab in names():
            remove(lab)
    assert "bandwidth" in measured
    network = load_network(tmp_path / "network.json")
    assert 0.5 * 250e6 < network.bandwidth_bps < 1.1 * 250e6  # what the lab holds the link to
    assert network.host is not None
    assert network.host.workers == 2
    plan = load_plan(tmp_path / "plan.json")
    assert f"'{plan.policy}' stays: " in trained
    assert f"'{plan.policy}' stays: it was given, and no other was tried" in again
    assert re.findall(r"rate under '(.*)': [0-9.]+ steps/s\n", compared) == ["ddp", plan.policy]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_jobs_share_two_machines_as_the_guide_says(tmp_path: Path) -> None:
    lab = f"shared{os.getpid()}"
    page = tmp_path / CLUSTER.name
    text = CLUSTER.read_text()
    page.write_text(text.replace("--name shared", f"--name {lab}").replace("--lab shared", f"--lab {lab}"))
    try:
        printed = run_blocks(page, tmp_path)
    finally:
        if lab in names():
            remove(lab)
    if os.geteuid() or not shutil.which("tc"):
        return  # what is simulated has run
    _, jobs, third, drained, by_http = printed[-5:]
    assert re.search(r"^\[0\] step 30: loss ", jobs, re.MULTILINE)
    assert re.search(r"^ train +finished +40/40 .* finished, ", jobs, re.MULTILINE)
    assert re.search(r"^ replay .* node0:0, node1:0 ", jobs, re.MULTILINE)
    assert third.startswith("large: waits for 2 GPUs with 12 GB of memory each; 0 have it, ")
    assert "  large: placed on node0, node1, attempt 1\n" in third
    assert "drained: node1" in drained
    notes = [json.loads(line)["notes"] for line in by_http.splitlines()[:3]]
    assert [note.partition(": ")[0] for (note,) in notes] == ["fourth"] * 3
    assert (notes[0], notes[2]) == (["fourth: queued"], ["fourth: cancelled"])
    assert '"text":"begins\\n"' in by_http
    assert "event: end\ndata: {" in by_http
    assert "# TYPE hocket_gpus_used gauge\n" in by_http
    assert (tmp_path / "shared" / "jobs" / "1" / "model.pt").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_commands_of_algorithms_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page has blocks of commands, of a step or a job set; in one process, since there are twenty."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "docs/figures/cnn.step.json", "step.json")
    Path("examples").symlink_to(ROOT / "examples")
    command = CliRunner().invoke
    assert command(app, ["cluster", "generate", "paper", "--jobs", "20", "-o", "jobs.json"]).exit_code == 0
    ran = set()
    for page in ALGORITHMS:
        blocks = BLOCK.findall(page.read_text())
        assert blocks, page.name
        for words in map(shlex.split, "\n".join(block[2] for block in blocks).splitlines()):
            result = command(app, words[1:])
            assert result.exit_code == 0, f"{page.name}: {result.output}"
            assert (
                words[words.index("--policy") + 1] in result.output if "--policy" in words else result.output
            )
        ran.add(page.stem)
    assert {"tac", "caramel", "exact", "ada-srsf"} <= ran


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
