"""Ranks that fail, and the real thing with a model of a few bytes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.bench.rank_process import LOST
from hocket.bench.training.train import Ended, check_ended
from hocket.bench.training.training_request import BUCKETS_MB, BUSY, COMPUTE, HOCKET, NETWORK, ddp_name
from hocket.errors import HocketError

TINY = """
import os, sys, torch

def factory(batch_size):
    print("printed by a user's file")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    batch = torch.randn(batch_size, 16), torch.randint(4, (batch_size,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, batch, torch.nn.CrossEntropyLoss(), optimizer

def failing(batch_size):
    raise ValueError("no such data")

def first(batch_size):
    sys.stderr.write(f"threads: {len(os.listdir('/proc/self/task'))}\\n")
    return factory(batch_size)

second = third = first

def placed(batch_size):
    sys.stderr.write(f"processors: {sorted(os.sched_getaffinity(0))}\\n")
    return factory(batch_size)
"""


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        ([Ended(0, LOST, 1.0), Ended(1, 1, 1.1)], "rank 1 failed while training: ValueError: no data"),
        ([Ended(0, LOST, 1.0), Ended(1, 0, 1.1)], "rank 0 .*: another rank is gone: RuntimeError: closed"),
        ([Ended(0, LOST, 1.0), Ended(1, -15, 11.0), Ended(2, -9, 0.9)], "rank 2 was ended by signal 9"),
        ([Ended(3, 7, 1.0)], "rank 3 failed while training: status 7; standard error says more"),
    ],
)
def test_the_rank_that_failed_first_is_named(ended: list[Ended], line: str, tmp_path: Path) -> None:
    (tmp_path / "0.failed").write_text("RuntimeError: closed")
    (tmp_path / "1.failed").write_text("ValueError: no data")
    with pytest.raises(HocketError, match=line):
        check_ended(ended, tmp_path)


def test_ranks_that_have_ended_well_are_no_failure(tmp_path: Path) -> None:
    check_ended([Ended(0, 0, 2.0), Ended(1, 0, 1.0)], tmp_path)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return path


def bench(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hocket", "bench", "train", "--steps", "2", "--blocks", "3", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def on_loopback(*arguments: str) -> list[tuple[int, str, str]]:
    """Status, output and errors of two ranks that a launcher started."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    processes = [bench(*arguments, RANK=str(rank), **meeting) for rank in range(2)]
    try:
        ended = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *both) for process, both in zip(processes, ended, strict=True)]


def check(document: dict[str, Any], model: str) -> None:
    assert document["workers"] == 2
    (cell,) = document["cells"]
    assert (cell["model"], cell["batch_size"], cell["rho_target"]) == (model, 8, None)
    assert cell["gradient_bytes"] == 4 * (16 * 32 + 32 + 32 * 4 + 4)
    variants = [row["variant"] for row in cell["rows"]]
    assert variants == [COMPUTE, BUSY, NETWORK, *map(ddp_name, BUCKETS_MB), HOCKET]
    for row in cell["rows"]:
        assert len(row["rounds_s"]) == 3
        assert 0 < row["step_s"]["low"] <= row["step_s"]["median"] <= row["step_s"]["high"]
        assert (row["speedup"] is None) == (row["variant"] in (COMPUTE, BUSY, NETWORK))
    # Of steps that all took as long as on the slowest rank; which rank that is may change.
    assert cell["lockstep_s"] >= cell["busy_s"] * (1 - 2e-6)
    assert cell["bound_s"] == pytest.approx(max(cell["busy_s"], cell["network_s"], cell["cycle_s"]), rel=2e-6)
    assert document["summary"]["least_speedup"] > 0


@pytest.mark.slow
def test_ranks_that_a_launcher_started_take_turns_and_the_first_prints(tiny: Path) -> None:
    (first, out, progress), second = on_loopback("--model", f"{tiny}:factory", "--batch-size", "8", "--json")
    assert first == 0, progress
    assert second[:2] == (0, "")
    assert "round 3 of 3" in progress
    tried = r"tried: '.+' [0-9.]+ ms \(median [0-9.]+ of [0-9]+ turns\), '"
    stays = r"'.+' stays: no other plan was 2% faster in simulation"  # as in a profile that was disturbed
    assert re.search(rf"hocket: plan '.+', in force: .*\n(.*\n)*.*hocket: ({tried}|{stays})", progress)
    assert json.loads(out)["rate_bps"] is None
    check(json.loads(out), f"{tiny}:factory")


@pytest.mark.slow
@pytest.mark.long
def test_nothing_runs_on_beside_later_models(tiny: Path) -> None:
    models = ",".join(f"{tiny}:{name}" for name in ("first", "second", "third"))
    for status, _, errors in on_loopback("--model", models, "--batch-size", "8", "--blocks", "1"):
        assert status == 0, errors
        # Libraries start threads of their own with the first model.
        _, second, third = (int(count) for count in re.findall(r"threads: (\d+)", errors))
        assert third <= second


@pytest.mark.slow
def test_a_rank_that_fails_says_why_in_one_line(tiny: Path) -> None:
    for status, out, errors in on_loopback("--model", f"{tiny}:failing", "--batch-size", "8"):
        assert (status, out) == (2, "")
        assert errors.splitlines()[-1].startswith("hocket: rank ")
        assert errors.splitlines()[-1].endswith(f"{tiny}:failing raised ValueError: no such data")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are made by root")
def test_training_is_timed_on_an_emulated_cluster(tiny: Path) -> None:
    arguments = ("--model", f"{tiny}:factory", "--batch-size", "8", "--rate", "100mbit", "--json")
    with bench(*arguments) as process:
        out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert json.loads(out)["rate_bps"] == 100e6
    check(json.loads(out), f"{tiny}:factory")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are made by root")
@pytest.mark.parametrize("more", [0, pytest.param(1, marks=pytest.mark.long)])
def test_nodes_have_processors_of_their_own_where_their_threads_fit(tiny: Path, more: int) -> None:
    mine = os.sched_getaffinity(0)
    fit = max(1, len(mine) // 2)
    arguments = ("--model", f"{tiny}:placed", "--batch-size", "8", "--threads", str(fit + more))
    with bench(*arguments) as process:
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    told = re.findall(r"\[(node\d)\] processors: (\[.*?\])", errors)
    by_node = {node: set(json.loads(shown)) for node, shown in told}
    if more or len(mine) == 1:
        assert by_node == {"node0": mine, "node1": mine}
    else:
        assert len(by_node["node0"]) == len(by_node["node1"]) == fit
        assert not by_node["node0"] & by_node["node1"]
