"""Stopping a command: no half-written output, no traceback, and the status that shells expect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.document import write_whole
from tests.unit.cli.test_commands import BRANCHES, STEP


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_nothing(tmp_path: Path, number: int, status: int) -> None:
    output = tmp_path / "timeline.json"
    command = [
        sys.executable,
        "-m",
        "hocket",
        "simulate",
        STEP,
        "--policy",
        "random",
        "--iterations",
        "100000000",
    ]
    with subprocess.Popen(
        [*command, "--timeline", str(output)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # Its memory map shows the compiled kernels' runtime once it is past its imports.
        for _ in range(600):
            if "llvmlite" in Path(f"/proc/{process.pid}/maps").read_text():
                break
            time.sleep(0.1)
        time.sleep(1.0)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


_KERNELS = {
    "predicted steps": ["predict", STEP, "--mode", "sync", "--architecture", "ps", "--workers", "3000"],
    "overlapping steps": [
        "simulate",
        BRANCHES,
        "--policy",
        "p3",
        "--workers",
        "20000",
        "--bandwidth",
        "1Mbit/s",
    ],
}


@pytest.mark.parametrize("kernel", _KERNELS)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_kernel_that_runs_for_long_says_so_and_is_stopped(kernel: str, number: int, status: int) -> None:
    steps = ["--steps", "1000000"] if kernel == "predicted steps" else ["--iterations", "1000000"]
    command = [sys.executable, "-m", "hocket", *_KERNELS[kernel], *steps]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()  # after a second of it
        time.sleep(1.0)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status
    assert said.startswith(("predicting: ", "planning by p3: ", "simulating: "))
    assert "Traceback" not in err
    assert out == ""


_BUSY_FACTORY = """
import time

def build():
    print("begun", flush=True)
    try:
        time.sleep(60)
    except BaseException as error:
        {raises}
"""


@pytest.mark.parametrize("raises", ["raise", "raise RuntimeError('no model') from None"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_users_factory_is_stopped_as_any_command_is(
    tmp_path: Path, raises: str, number: int, status: int
) -> None:
    factory, output = tmp_path / "mine.py", tmp_path / "step.json"
    factory.write_text(_BUSY_FACTORY.format(raises=raises))
    command = [sys.executable, "-m", "hocket", "profile", f"{factory}:build", "-o", str(output)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.1)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status
    assert "raised Stop" not in err
    assert not output.exists()


def _catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.25])
def test_an_interrupt_during_the_imports_is_no_traceback(delay_s: float) -> None:
    command = [
        sys.executable,
        "-m",
        "hocket",
        "simulate",
        STEP,
        "--policy",
        "tac",
        "--iterations",
        "100000000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # Python alone never catches SIGTERM: our first lines have run, and the imports begin.
        for _ in range(6000):
            if _catches_sigterm(process.pid):
                break
            time.sleep(0.005)
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in err


_CLEANS_UP = """
import asyncio, os, shutil, signal, sys, time
from pathlib import Path
from hocket.cli.cluster import served_manager
from hocket.signals import unwinding

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

async def work(stops):
    if stops:
        stop()
        await asyncio.sleep(60)

remove = shutil.rmtree

def removing(folder, **keywords):
    if {again}:
        stop()
    remove(folder, **keywords)

def command():
    shutil.rmtree = removing
    with served_manager.state_folder(None) as folder:
        Path(sys.argv[1]).write_text(str(folder))
        served_manager.run_until_stopped(work({stops}))
        if not {stops}:
            stop()
            time.sleep(60)
    sys.exit(0)

unwinding(command)
"""


@pytest.mark.parametrize(("stops", "again"), [(False, False), (True, True)])
def test_a_stop_behind_the_managers_end_leaves_no_folder(tmp_path: Path, stops: bool, again: bool) -> None:
    """Its loop's handlers are gone by then, and it cleans up."""
    script = _CLEANS_UP.replace("{stops}", str(stops)).replace("{again}", str(again))
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "folder")], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGTERM, "")
    assert not Path((tmp_path / "folder").read_text()).exists()


def test_a_manager_under_nohup_outlives_its_terminal() -> None:
    script = """
import asyncio, os, signal
from hocket.cli.cluster.served_manager import run_until_stopped

async def work():
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0.1)
    print("goes on")

signal.signal(signal.SIGHUP, signal.SIG_IGN)
run_until_stopped(work())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "goes on\n")


def test_an_interrupt_while_writing_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    write_whole(b"old", target)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            while True:
                write_whole(b"new" * 100_000, target)
        finally:
            os._exit(0)
    time.sleep(0.3)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    assert target.read_bytes() in (b"old", b"new" * 100_000)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_leaves_early_is_no_error(more: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    arguments = ["predict", STEP, "--mode", "async", "--workers", "1-200", "--steps", "4", *more]
    with os.fdopen(write, "wb") as gone:
        ran = subprocess.run(
            [sys.executable, "-m", "hocket", *arguments],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    assert "Exception" not in ran.stderr
