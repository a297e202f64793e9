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
from tests.unit.cli.test_commands import STEP


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


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m hocket plan {STEP} --policy tac | true"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in ran.stderr
    assert "Exception" not in ran.stderr
