"""Planning in a process of its own: what it answers, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.network import Network
from hocket.planner import POLICIES, NamedPlanner
from hocket.tuner import distribute
from hocket.tuner.plan_argument import AUTO
from hocket.tuner.planning_process import MadePlans, PlanningProcess, PlanRequest
from hocket.tuner.training_plans import plans_for
from tests.golden.make import BRANCHES_NETWORK, branches

LIMIT_S = 60.0


@pytest.mark.parametrize("policy", [AUTO, "bytescheduler"])
def test_plans_are_those_that_this_process_would_make(policy: str) -> None:
    graph = branches()
    wanted = plans_for(policy, graph, BRANCHES_NETWORK)
    assert PlanningProcess(PlanRequest(policy, graph, BRANCHES_NETWORK), LIMIT_S).plans() == wanted


def test_a_planner_that_a_script_has_added_plans_here(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plans_for("caramel", branches(), BRANCHES_NETWORK)[0]
    mine = NamedPlanner(lambda *_: made, "allreduce")
    monkeypatch.setitem(POLICIES, "mine", mine)
    planning = distribute._Planner("mine").begin(branches(), BRANCHES_NETWORK)
    assert planning == MadePlans([made])
    assert planning.is_over()


@pytest.mark.parametrize(
    ("policy", "graph", "limit_s", "line"),
    [
        ("tac", branches(), LIMIT_S, "policy 'tac' is not for architecture 'allreduce'"),
        ("ddp", branches(), 0.01, "planning by 'ddp' took longer than timeout_s, 0.01 s"),
    ],
)
def test_a_process_that_has_no_plan_is_one_line(policy: str, graph: Any, limit_s: float, line: str) -> None:
    with pytest.raises(HocketError) as refused:
        PlanningProcess(PlanRequest(policy, graph, Network(bandwidth_bps=1e9)), limit_s).plans()
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_what_else_goes_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise OSError('no file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HocketError) as failed:
        PlanningProcess(PlanRequest("ddp", branches(), BRANCHES_NETWORK), LIMIT_S).plans()
    assert str(failed.value) == "planning by 'ddp' failed: OSError: no file; give a plan by plan="


def test_it_is_said_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(HocketError, match="no process can be started to plan in"):
        PlanningProcess(PlanRequest("ddp", branches(), BRANCHES_NETWORK), LIMIT_S).plans()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_it_ends_with_the_process_that_asked() -> None:
    asking = (
        "from tests.golden.make import BRANCHES_NETWORK, branches\n"
        "from hocket.tuner.planning_process import PlanningProcess, PlanRequest\n"
        "PlanningProcess(PlanRequest('search', branches(), BRANCHES_NETWORK), 60).plans()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", asking])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    try:
        found = _soon(lambda: children.read_text().split())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    (child,) = found
    try:
        assert _soon(lambda: not _runs(child))
    finally:
        if _runs(child):
            os.kill(int(child), signal.SIGKILL)


def test_training_loads_no_kernels() -> None:
    code = "import hocket, sys; hocket.distribute; import hocket.runtime; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _soon(value: Any) -> Any:
    """The first true ``value()`` of the next while."""
    end_s = time.monotonic() + 30
    while not (found := value()) and time.monotonic() < end_s:
        time.sleep(0.05)
    return found
