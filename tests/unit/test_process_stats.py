"""Processes as the kernel tells of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.process_stats import ProcessStat, descendants, process_stat, process_stats

PRINTS_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_a_child_and_its_child_are_found_below_this_process() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", PRINTS_A_CHILD], text=True, **pipes) as child:  # type: ignore[call-overload]
        grandchild = int(child.stdout.readline())
        found = process_stats()
        assert (found[child.pid].parent, found[grandchild].parent) == (os.getpid(), child.pid)
        assert {child.pid, grandchild} <= descendants(found, os.getpid())
        assert descendants(found, child.pid) == {grandchild}
        assert found[child.pid].began == process_stat(child.pid).began
        child.communicate("\n", timeout=60)


def test_no_process_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        process_stat(2**22 + 1)


@given(parents=st.lists(st.integers(0, 9), min_size=9, max_size=9))
def test_descendants_are_those_whose_ancestors_reach_the_root(parents: list[int]) -> None:
    processes = {pid: ProcessStat("S", parent, 0, "0") for pid, parent in enumerate(parents, start=1)}

    def ancestors(pid: int) -> set[int]:
        found: set[int] = set()
        while pid in processes and (pid := processes[pid].parent) not in found:
            found.add(pid)
        return found

    assert descendants(processes, 1) == {pid for pid in processes if 1 in ancestors(pid)}
