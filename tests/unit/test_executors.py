"""One function over many arguments in other processes: what comes back, and what is said when none does."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from hocket.errors import FormatError, HocketError
from hocket.executors import on_processes


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def refuse(number: int) -> int:
    if number == 1:
        raise FormatError("jobs.json", "jobs[0].gpus", "0 is too few")
    return number


def end(_number: int) -> None:
    os._exit(1)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_results_come_in_the_order_of_tasks_from_other_processes() -> None:
    seen: list[tuple[int, int]] = []
    found = on_processes(double, [(k,) for k in range(5)], lambda done, total: seen.append((done, total)))
    assert [value for value, _ in found] == [0, 2, 4, 6, 8]
    assert os.getpid() not in {process for _, process in found}
    assert seen[-1] == (5, 5)
    assert seen == sorted(seen)


def test_a_refusal_keeps_its_one_line() -> None:
    with pytest.raises(HocketError, match=r"^jobs.json: jobs\[0\].gpus: 0 is too few$"):
        on_processes(refuse, [(k,) for k in range(3)])


def test_a_process_that_is_ended_is_a_refusal() -> None:
    with pytest.raises(HocketError, match="ended from outside"):
        on_processes(end, [(0,)])


def test_what_stops_us_stops_the_processes() -> None:
    others = set(multiprocessing.active_children())

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        on_processes(sleep, [(100.0,)], stop)
    assert time.monotonic() - began < 60
    assert set(multiprocessing.active_children()) <= others


@pytest.mark.long
def test_ray_says_what_processes_say() -> None:
    pytest.importorskip("ray")
    program = (
        "from hocket.errors import HocketError\n"
        "from hocket.executors import on_ray\n"
        "from tests.unit.test_executors import double, end, refuse\n"
        "print([value for value, _ in on_ray(double, [(k,) for k in range(3)])])\n"
        "try:\n"
        "    on_ray(refuse, [(1,)])\n"
        "except HocketError as error:\n"
        "    print(error)\n"
        "try:\n"
        "    on_ray(end, [(1,)])\n"
        "except HocketError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["[0, 2, 4]", "jobs.json: jobs[0].gpus: 0 is too few"], ran.stderr
    # Ray's own log comes in between.
    assert lines[-1].startswith("a Ray process died"), ran.stderr
