"""Processes that are killed are waited for, and those that have ended are passed over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from hocket.ending import end_processes, kill, signal_each
from hocket.errors import HocketError
from hocket.process_stats import all_pids, first_environment

# It says that it ignores SIGTERM once it does.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def stubborn() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, env={"MARK": "a=b"})
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def test_what_is_killed_has_ended_afterwards() -> None:
    processes = [stubborn(), stubborn()]
    assert first_environment(processes[0].pid) == {"MARK": "a=b"}
    assert {process.pid for process in processes} <= set(all_pids())
    kill(processes)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2
    kill(processes)  # also once they have ended
    signal_each([process.pid for process in processes], signal.SIGKILL)
    with pytest.raises(OSError):
        first_environment(processes[0].pid)


def test_a_process_has_each_step_s_time_to_end() -> None:
    process = stubborn()

    def running() -> list[int]:
        return [process.pid] if process.poll() is None else []

    def wait() -> None:
        time.sleep(0.02)

    try:
        with pytest.raises(HocketError, match=f"processes {process.pid} do not end"):
            end_processes(running, ((signal.SIGTERM, 0.1),), wait)
        end_processes(running, ((signal.SIGTERM, 0.1), (signal.SIGKILL, 20.0)), wait)
        assert process.returncode == -signal.SIGKILL
        end_processes(running, ((signal.SIGTERM, 0.0),), lambda: os.abort())  # nothing is left to wait for
    finally:
        kill([process])
