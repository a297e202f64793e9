"""``hocket train`` with real processes: it is torchrun, down to its status and its signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hocket
from hocket.graph import Reduction
from tests.unit.cli.test_commands import CARAMEL

pytestmark = pytest.mark.slow

SUM = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(total)
told = {name: value for name, value in os.environ.items() if name.startswith("HOCKET_")}
seen = {"sum": total.item(), "told": told, "arguments": sys.argv[1:]}
Path(f"rank{dist.get_rank()}.json").write_text(json.dumps(seen))
dist.destroy_process_group()
"""

FAIL = "import sys; sys.exit(3)"

WAIT = """
import os, time
from pathlib import Path
Path(f"rank{os.environ['RANK']}.pid").write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def train(script: str, *options: str) -> subprocess.Popen[str]:
    Path("train.py").write_text(script)
    command = [sys.executable, "-m", "hocket", "train", "--standalone", "--nproc-per-node", "2", *options]
    return subprocess.Popen(
        [*command, "train.py", "--plan", "the script's"], stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    with process:
        try:
            _, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its processes
            raise
    return process.returncode, err


def test_the_processes_meet_and_know_what_was_asked_for(tmp_path: Path) -> None:
    status, err = ended(train(SUM, "--plan", CARAMEL, "--timeline", "out.json"))
    assert status == 0, err
    for rank in range(2):
        assert json.loads(Path(f"rank{rank}.json").read_text()) == {
            "sum": 3.0,
            "told": {
                "HOCKET_CACHE": "off",  # as all tests have it
                "HOCKET_PLAN": CARAMEL,
                "HOCKET_TIMELINE": str(tmp_path / "out.json"),
            },
            "arguments": ["--plan", "the script's"],
        }
    assert err.splitlines()[-1] == (
        "hocket: train.py never called hocket.distribute: it ran as under torchrun, and --plan and --timeline"
        " had no effect"
    )


def test_a_script_that_fails_gives_torchruns_status() -> None:
    status, err = ended(train(FAIL))
    assert status == 1
    assert re.fullmatch(r"hocket: rank [01] ended with status 3", last_line(err))


MISTAKE = """
import torch
import torch.distributed as dist
import hocket

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hocket.distribute(model, optimizer, plan="ddp"{more})
for step in range(4):
    if step == 2 and dist.get_rank() == 1:
        {mistake}
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
model.hocket.flush()
"""
KEY = MISTAKE.format(more="", mistake="raise KeyError('mine')")
KILLED = MISTAKE.format(more="", mistake="import os; os.kill(os.getpid(), 9)")
REFUSED = MISTAKE.format(more=", device_ids=[3]", mistake="pass")


def last_line(err: str) -> str:
    return err.splitlines()[-1]


def test_an_error_of_the_script_is_told_once_with_the_scripts_own_lines() -> None:
    status, err = ended(train(KEY))
    assert status == 1
    assert err.count("Traceback") == 1
    assert "ChildFailedError" not in err
    assert "training_script.py" not in err
    assert err.count("raise KeyError('mine')") == 1
    found = re.fullmatch(
        r"hocket: rank 1, train.py line 12: KeyError: 'mine' \(tracebacks of all ranks: (\S+)\)",
        last_line(err),
    )
    assert found is not None
    (kept,) = [
        path for path in Path(found[1]).parents[1].glob("*/error.json") if path.parent.name == "1"
    ]  # what torch's own tools read
    assert "KeyError: 'mine'" in json.loads(kept.read_text())["message"]["extraInfo"]["py_callstack"]


def test_what_hocket_refuses_is_one_line_and_status_2() -> None:
    status, err = ended(train(REFUSED))
    assert status == 2
    assert "Traceback" not in err
    assert err.count("device_ids=[3]") == 1
    assert re.match(r"hocket: rank [01], train.py line 9: device_ids=\[3\] is", last_line(err))


def test_a_rank_that_is_killed_is_the_reason() -> None:
    status, err = ended(train(KILLED))
    assert status == 1
    assert last_line(err).startswith("hocket: rank 1 was killed by SIGKILL, as the system does")


@pytest.mark.long
def test_ranks_that_are_started_again_tell_of_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    status, err = ended(train(KEY, "--max-restarts", "1"))
    assert status == 1
    assert err.count("raise KeyError('mine')") == 2
    assert last_line(err).startswith("hocket: rank 1, train.py line 12: KeyError")


def test_a_value_that_torchrun_does_not_take_is_one_line() -> None:
    status, err = ended(train(FAIL, "--nnodes", "two"))
    assert status == 1
    assert last_line(err) == "hocket: torchrun: ValueError: invalid literal for int() with base 10: 'two'"


@pytest.mark.long
def test_verbose_shows_all_of_it() -> None:
    # Torchrun ends the other ranks with SIGTERM when it sees the first one fail: both have to print before.
    patient = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    status, err = ended(train(patient + REFUSED, "-v"))
    assert status == 2
    assert "ChildFailedError" in err
    told = re.findall(r"^\[rank([01])\]: hocket.errors.HocketError: device_ids", err, re.MULTILINE)
    assert sorted(told) == ["0", "1"]


LEAVE = """
import signal
from pathlib import Path
import torch
import torch.distributed as dist
import hocket

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, which ends ranks before they know why
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hocket.distribute(model, optimizer, plan="ddp")
try:
    for step in range(8):
        if dist.get_rank() == 1 and step == 5:
            raise SystemExit(3)
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    model.hocket.flush()
except hocket.HocketError as error:
    Path("error").write_text(str(error))
"""


def test_a_rank_that_leaves_with_a_status_is_gone_to_the_others() -> None:
    status, err = ended(train(LEAVE))
    assert status == 1
    assert last_line(err).startswith("hocket: rank 1 ended with status 3")
    assert Path("error").read_text().startswith("training stopped: rank 1 is gone")


LEARN = """
import torch
import torch.distributed as dist
import hocket

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
network = hocket.Network(bandwidth_bps=1e9, num_workers=2)
hocket.distribute(model, optimizer, plan="caramel", network=network)
for step in range(12):
    model(torch.ones(3, 4)).sum().backward()
    if step == 10:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step == 5 and dist.get_rank() == 1:
        print(model.hocket, flush=True)
model.hocket.flush()
dist.destroy_process_group()
"""


def test_the_phases_of_the_first_steps_are_told_once_by_the_first_rank() -> None:
    status, err = ended(train(LEARN, "-v"))
    assert status == 0, err
    told = [line.removeprefix("hocket: ") for line in err.splitlines() if line.startswith("hocket: ")]
    assert [line.split(":")[0] for line in told] == [
        "learning",
        "profiling",
        "planning",
        "plan 'caramel' stays",
        "barrier",
    ]
    assert told[-1] == (
        "barrier: gradients were read before the optimizer's step, first at train.py:14 (clip_grad_norm_):"
        " in step 11, for 0.weight"
    )


@pytest.mark.long
def test_the_first_steps_say_nothing_unless_asked() -> None:
    status, err = ended(train(LEARN))
    assert status == 0, err
    assert "hocket: " not in err


GIVEN = """
from pathlib import Path
import torch
import torch.distributed as dist
import hocket

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hocket.distribute(model, optimizer)
for step in range(8):
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
if dist.get_rank() == 1:
    Path("told").write_text(model.hocket.explain())
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_plan_for_four_workers_says_so_to_two(tmp_path: Path) -> None:
    names = ("0.weight", "0.bias", "1.weight", "1.bias")
    plan = hocket.Plan(
        policy="mine",
        model="m",
        architecture="allreduce",
        reductions=(Reduction(parameters=names[2:]), Reduction(parameters=names[:2])),
        compute_order=None,
        workers=4,
    )
    hocket.save_plan(plan, tmp_path / "four.json")
    status, err = ended(train(GIVEN, "--plan", "four.json"))
    assert status == 0, err
    assert err.count("plan 'mine' was planned for 4 workers; this job has 2") == 1
    told = Path("told").read_text().splitlines()
    assert "plan 'mine' was planned for 4 workers; this job has 2" in told
    (step,) = (line for line in told if line.startswith("a step: "))
    assert "ms (mean of steps 4 to 7 on this rank); computing " in step
    assert step.endswith(" (no network was measured, as the plan was given)")


QUIET = """
import atexit, os
from pathlib import Path

def gloos_threads():
    names = [Path(f"/proc/self/task/{thread}/comm").read_text() for thread in os.listdir("/proc/self/task")]
    return names.count("pt_gloo_runloop\\n")  # torch's name for those that hold tensors

def left():
    Path(f"threads{os.environ['RANK']}").write_text(f"{training} {gloos_threads()}")

atexit.register(left)  # before all others, so it is run after them
import torch
import torch.distributed as dist
import hocket

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hocket.distribute(model, optimizer, plan="ddp")
for step in range(4):
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
training = gloos_threads()
"""


def test_no_thread_of_gloo_is_left_to_abort_an_interpreter_that_ends() -> None:
    status, err = ended(train(QUIET))
    assert status == 0, err
    for rank in range(2):
        training, left = map(int, Path(f"threads{rank}").read_text().split())
        assert training > 2
        assert left == 2  # those of the script's own group, which torch does not end either


def test_a_signal_ends_everybody() -> None:
    process = train(WAIT)
    try:
        pids = [Path(f"rank{rank}.pid") for rank in range(2)]
        deadline = time.monotonic() + 60
        while not all(pid.exists() and pid.read_text() for pid in pids):
            assert time.monotonic() < deadline, "the ranks did not start"
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    finally:
        status, err = ended(process)
    assert status != 0, err
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
