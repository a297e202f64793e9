"""``hocket train --architecture ps`` with real processes: training, killed workers, killed servers."""

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
import torch

from hocket.launch import Rule, ServedJob
from hocket.ports import free_port
from hocket.runtime.ps.server.values import Values
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from tests.multiprocess.launch import ROOT
from tests.tokens import TOKEN

pytestmark = pytest.mark.slow

PS = ("--architecture", "ps")
SCRIPT = str(ROOT / "tests/multiprocess/serving_cases.py")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


class Run:
    """``hocket train`` on a case; it ends at the latest when its block does."""

    def __init__(self, case: str, *options: str) -> None:
        command = [sys.executable, "-m", "hocket", "train", *options, SCRIPT, case, "--plan", "its own"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()  # it ends what it has started
        self.process.communicate(timeout=30)

    def ended(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=100)
        return self.process.returncode, err


def ended(case: str, *options: str) -> tuple[int, str]:
    with Run(case, *options) as run:
        return run.ended()


def servers_of(run: Run) -> list[int]:
    """The servers' process numbers, by what they run."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = status.read_text().split("PPid:")[1].split()[0]
            command = (status.parent / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if int(parent) == run.process.pid and b"hocket.runtime.ps.server.server" in command:
            index = command[command.index(b"hocket.runtime.ps.server.server") + 1]
            found[int(index)] = int(status.parent.name)
    return [found[index] for index in sorted(found)]


def wait_for(*files: str) -> None:
    deadline = time.monotonic() + 80
    while not all(Path(file).exists() and Path(file).read_text() for file in files):
        assert time.monotonic() < deadline, f"{files} did not come"
        time.sleep(0.05)


def values(worker: int) -> dict[str, torch.Tensor]:
    return {k: torch.tensor(v) for k, v in json.loads(Path(f"{worker}.json").read_text())["values"].items()}


def test_servers_and_workers_train_a_script_that_knows_nothing_of_them() -> None:
    status, err = ended("parity", *PS, "--workers", "2", "--policy", "tac")
    assert status == 0, err
    served = [values(worker) for worker in range(2)]
    assert all(torch.equal(served[0][k], served[1][k]) for k in served[0])
    told = json.loads(Path("0.json").read_text())
    assert told["arguments"] == ["--plan", "its own"]
    assert "plan 'tac', in force" in told["explain"]
    assert "out of order: 0.00%" in told["explain"]


def test_the_same_script_trains_with_servers_and_with_allreduce_alike() -> None:
    status, err = ended("parity", *PS, "--workers", "2", "--servers", "2")
    assert status == 0, err
    served = values(1)
    status, err = ended("parity", "--standalone", "--nproc-per-node", "2", "--plan", "ddp")
    assert status == 0, err
    reduced = values(0)
    assert all(torch.allclose(served[k], reduced[k], rtol=0, atol=1e-6) for k in reduced)


@pytest.mark.long
def test_a_killed_server_ends_every_worker_with_one_error_that_names_it() -> None:
    with Run("fails", *PS, "--workers", "1", "--servers", "2", "--mode", "async") as run:
        wait_for("pid0")
        _, second = servers_of(run)
        os.kill(second, signal.SIGKILL)
        status, err = run.ended()
    assert status == 1
    assert Path("error0").read_text().startswith("training stopped: server 1 at 127.0.0.1:")
    assert "hocket: server 1 ended with signal SIGKILL; everything was ended" in err


@pytest.mark.timeout(200)
def test_a_killed_server_goes_on_with_every_step_that_it_acknowledged() -> None:
    options = (*PS, "--workers", "2", "--servers", "2", "--mode", "async", "--checkpoint", "kept")
    with Run("paced", *options) as run:
        wait_for("at0", "at1")
        os.kill(servers_of(run)[1], signal.SIGKILL)
        status, err = run.ended()
    assert status == 1, err
    for worker in (0, 1):
        assert re.fullmatch(r"training stopped: server 1 .*", Path(f"error{worker}").read_text())
    came = int(Path("at0").read_text())
    status, err = ended("paced", *options)
    assert status == 0, err
    # A step returns when the one before it is acknowledged.
    assert int(Path("first0").read_text()) >= came
    sizes = {"0.weight": (3, 4), "1.weight": (2, 3)}
    spec = Spec(
        parameters=tuple(TensorSpec(name, shape, "float32") for name, shape in sizes.items()),
        groups=(0, 0),
        optimizer="SGD",
        settings=[{"lr": 1.0}],
    )
    job = ServedJob(
        address="127.0.0.1:1",
        token=TOKEN,
        rule=Rule(mode="async", workers=2),
        servers=2,
        checkpoint="kept",
    )
    for server in (0, 1):
        held = Values(job, server, spec)
        held.restore(0)
        held.close()
        (value,) = held.shard.parameters
        assert torch.equal(value, torch.full_like(value, -120.0))


@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("fails", "signal SIGKILL"),
        pytest.param("exits", "status 1", marks=pytest.mark.long),
        pytest.param("leaves", "status 3", marks=pytest.mark.long),
    ],
)
def test_an_asynchronous_worker_that_fails_comes_again_while_others_go_on(case: str, how: str) -> None:
    status, err = ended(case, *PS, "--workers", "2", "--mode", "async", "--restarts", "1")
    assert status == 0, err
    assert f"worker 1 ended with {how}; it is started again" in err
    assert "worker 1 is gone: its connection" in err
    assert int(Path("steps1").read_text()) == 20
    assert int(Path("steps0").read_text()) > 20


@pytest.mark.parametrize(
    ("case", "transport"),
    [("stops", "gloo"), pytest.param("hangs", "grpc", marks=pytest.mark.long)],
)
def test_an_asynchronous_worker_that_stalls_is_ended_and_comes_again(case: str, transport: str) -> None:
    options = ("--workers", "2", "--mode", "async", "--restarts", "1", "--timeout", "12s")
    status, err = ended(case, *PS, *options, "--transport", transport)
    assert status == 0, err
    assert re.search(r"worker 1 ended with no sign of life for 1\d s; it is started again", err), err
    assert int(Path("steps1").read_text()) == 20


@pytest.mark.long
def test_a_synchronous_job_ends_with_the_worker_that_stalls() -> None:
    status, err = ended("stops", *PS, "--workers", "2", "--timeout", "12s")
    assert status == 1, err
    assert "everything was ended" in err


@pytest.mark.parametrize(("worker", "options"), [(0, ("--servers", "2")), (1, ("--staleness", "1"))])
def test_a_worker_that_fails_before_it_joins_is_not_waited_for(
    worker: int, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNABLE", str(worker))
    status, err = ended("unable", *PS, "--workers", "2", "--mode", "async", *options)
    assert status == 1
    assert f"hocket: worker {worker} ended with status 1 before it had joined, and the others wait" in err


def test_a_worker_that_fails_before_it_joins_is_done_without_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNABLE", "1")
    Path("again").write_text("")  # nobody is going to come again
    status, err = ended("unable", *PS, "--workers", "2", "--servers", "2", "--mode", "async")
    assert status == 0, err
    assert "worker 1 ended with status 1; the others go on" in err


def test_a_synchronous_job_ends_with_the_worker_that_is_killed() -> None:
    status, err = ended("fails", *PS, "--workers", "2")
    assert status == 1
    assert "hocket: worker 1 ended with signal SIGKILL; everything was ended" in err
    assert "worker 1 is gone in step" in Path("error0").read_text()


@pytest.mark.long
def test_a_script_that_leaves_has_failed_and_its_status_is_the_commands() -> None:
    status, err = ended("leaves", *PS, "--workers", "2")
    assert status == 3
    assert "everything was ended" in err
    assert "worker 1 is gone in step" in Path("error0").read_text()


def test_ranks_that_somebody_else_starts_become_servers_and_workers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hocket", "train", "--architecture", "ps", "--workers", "2"]
    ranks = []
    port = str(free_port("127.0.0.1"))
    environment = os.environ | {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for rank in range(3):
        told = environment | {"RANK": str(rank), "HOCKET_TOKEN": TOKEN}
        ranks.append(
            subprocess.Popen([*command, SCRIPT, "parity"], env=told, stderr=subprocess.PIPE, text=True)
        )
    try:
        for rank in ranks:
            _, err = rank.communicate(timeout=60)
            assert rank.returncode == 0, err
    finally:
        for rank in ranks:
            rank.kill()
    assert values(0).keys() == values(1).keys()
