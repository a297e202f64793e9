"""Planning in a process of its own: what it answers, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.graph import OperationRow, StepGraph
from hocket.network import Network
from hocket.planner import POLICIES, NamedPlanner
from hocket.tuner import distribute
from hocket.tuner.plan_argument import AUTO
from hocket.tuner.planning_process import MadePlans, PlanningProcess, PlanRequest
from hocket.tuner.training_plans import plans_for
from tests.golden.make import BRANCHES_NETWORK, branches
from tests.strategies import operation, parameter, step

LIMIT_S = 60.0


def chain() -> StepGraph:
    """Ten layers in a row, as steps are recorded, of four samples."""
    layers = [f"layer {k}" for k in range(10)]
    rows: list[OperationRow] = []
    for name in layers:
        before = [rows[-1].name] if rows else []
        rows.append(operation(f"forward {name}", [0.1, 0.2, 0.1, 0.1], inputs=before, reads=[name]))
    for name in reversed(layers):
        made = [name]
        rows.append(operation(f"back {name}", 0.2, inputs=[rows[-1].name], produces=made, phase="backward"))
    updates = [operation(f"update {name}", 0.01, reads=[name], phase="update") for name in layers]
    return step([parameter(name, 1000) for name in layers], [*rows, *updates])


def asked(request: PlanRequest, limit_s: float = LIMIT_S) -> PlanningProcess:
    """A process that was asked as soon as it was started."""
    process = PlanningProcess()
    process.ask(request, limit_s)
    return process


@pytest.mark.parametrize("policy", [AUTO, "bytescheduler"])
def test_plans_are_those_that_this_process_would_make(policy: str) -> None:
    graph = branches()
    wanted = plans_for(policy, graph, BRANCHES_NETWORK)
    assert asked(PlanRequest(policy, graph, BRANCHES_NETWORK)).plans() == wanted


def test_it_loads_what_it_needs_before_it_is_asked_and_waits() -> None:
    wanted = plans_for(AUTO, branches(), BRANCHES_NETWORK)
    process = PlanningProcess()
    process.wait_until_loaded(LIMIT_S)
    process.recede()
    assert not process.has_ended
    assert os.getpriority(os.PRIO_PROCESS, process._process.pid) == min(
        os.getpriority(os.PRIO_PROCESS, 0) + 5, 19
    )
    process.ask(PlanRequest(AUTO, branches(), BRANCHES_NETWORK), LIMIT_S)
    process.wait(LIMIT_S)
    assert process.plans() == wanted


def test_small_steps_have_loaded_all_that_others_need() -> None:
    """Also of a step whose operations have but one order, and of one that clips."""
    code = (
        "from hocket.graph.clipped_step import clipped\n"
        "from hocket.tuner.planning_process import rehearse\n"
        "rehearse()\n"
        "from numba.core.dispatcher import Dispatcher\n"
        "import gc\n"
        "def loaded():\n"
        "    kernels = (k for k in gc.get_objects() if isinstance(k, Dispatcher))\n"
        "    return {k.py_func.__qualname__: len(k.overloads) for k in kernels if k.overloads}\n"
        "before = loaded()\n"
        "from tests.golden.make import BRANCHES_NETWORK, branches\n"
        "from tests.unit.tuner.test_planning_process import chain\n"
        "from hocket.tuner.training_plans import plans_to_try\n"
        "for graph in (branches(), clipped(branches()), chain(), clipped(chain())):\n"
        "    plans_to_try(graph, BRANCHES_NETWORK)\n"
        "assert before and loaded() == before, (before, loaded())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("why", ["nobody asks in time", "whoever might ask has gone"])
def test_one_that_nobody_asks_ends(why: str) -> None:
    ours, theirs = socket.socketpair()
    idle_s = 0.1 if why == "nobody asks in time" else LIMIT_S
    code = f"from hocket.tuner import planning_process as p; p._IDLE_S = {idle_s}; p.main()"
    with ours, theirs:
        arguments = [str(os.getpid()), str(theirs.fileno())]
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            ours.settimeout(LIMIT_S)
            assert ours.recv(1)
            if idle_s == LIMIT_S:
                ours.close()
            assert process.wait(10) == 4
        finally:
            process.kill()
            process.wait()


def test_another_one_is_started_where_the_first_has_ended() -> None:
    planner = distribute._Planner(AUTO)
    planner.prepare()
    assert planner._process is not None
    planner._process.end()
    planning = planner.begin(branches(), BRANCHES_NETWORK)
    assert planning.plans() == plans_for(AUTO, branches(), BRANCHES_NETWORK)


def test_one_that_rests_is_gone() -> None:
    planner = distribute._Planner(AUTO)
    planner.prepare()
    waiting = planner._process
    assert waiting is not None
    planner.rest()
    assert waiting.has_ended
    assert planner._process is None


def test_one_that_was_not_started_is_loaded_where_it_is_waited_for() -> None:
    planner = distribute._Planner(AUTO)
    try:
        planner.wait_until_prepared(0.0)  # as where a kept choice is found, and does not hold
        assert planner._process is not None
        assert not planner._process.has_ended
    finally:
        planner.rest()
    of_a_policy = distribute._Planner("caramel")
    of_a_policy.wait_until_prepared(0.0)
    assert of_a_policy._process is None


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
        asked(PlanRequest(policy, graph, Network(bandwidth_bps=1e9)), limit_s).plans()
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_what_else_goes_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise OSError('no file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HocketError) as failed:
        asked(PlanRequest("ddp", branches(), BRANCHES_NETWORK)).plans()
    assert str(failed.value) == "planning by 'ddp' failed: OSError: no file; give a plan by plan="


def test_it_is_said_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(HocketError, match="no process can be started to plan in"):
        PlanningProcess()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_it_ends_with_the_process_that_asked() -> None:
    asking = (
        "from tests.golden.make import BRANCHES_NETWORK, branches\n"
        "from hocket.tuner.planning_process import PlanningProcess, PlanRequest\n"
        "process = PlanningProcess()\n"
        "process.ask(PlanRequest('search', branches(), BRANCHES_NETWORK), 60)\n"
        "process.plans()\n"
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
