"""The examples under torchrun: they learn the same with hocket.distribute as with DistributedDataParallel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.interop import load_timeline
from hocket.ports import free_port
from hocket.report.comparison import compare

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent
LINE = re.compile(r"step (\d+)  loss (\d+\.\d+)  \d+\.\d examples/s")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def losses(*command: str | Path) -> dict[int, float]:
    """What a run prints, by step."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its processes
            raise
    assert process.returncode == 0, err
    return {int(step): float(loss) for step, loss in LINE.findall(out)}


def trained(
    name: str, *arguments: str, launcher: tuple[str | Path, ...] = (BIN / "torchrun",)
) -> dict[int, float]:
    options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    return losses(*launcher, *options, EXAMPLES / f"{name}.py", "--batch-size", "2", *arguments)


def test_one_process_needs_no_torchrun() -> None:
    small = ("--steps", "3", "--batch-size", "2", "--ddp")
    assert losses(sys.executable, EXAMPLES / "gpt.py", *small).keys() == {1, 2, 3}


# A training of each kind in each run, and the others, which differ by their model, in long ones.
NAMES = ("cnn", *(pytest.param(name, marks=pytest.mark.long) for name in ("resnet18_cifar", "gpt")))
IN_FRAMEWORKS = ("lightning_fabric", "accelerate_cnn")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long
def test_a_rank_of_any_launcher_joins_the_others(name: str) -> None:
    port = str(free_port("127.0.0.1"))
    meeting = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, EXAMPLES / f"{name}.py", "--ddp", "--steps", "1", "--batch-size", "2"]
    ranks = [
        subprocess.Popen(command, env={**meeting, "RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    try:
        outs = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    # The second of them would print, too, were it a world of its own.
    assert [bool(LINE.search(out)) for out in outs] == [True, False]
    assert [rank.returncode for rank in ranks] == [0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_ddp(name: str) -> None:
    expected = trained(name, "--steps", "12", "--ddp")
    assert list(expected) == list(range(1, 13))
    assert trained(name, "--steps", "12") == pytest.approx(expected, rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", IN_FRAMEWORKS)
def test_losses_in_frameworks_are_those_of_their_ddp(name: str) -> None:
    expected = trained(name, "--steps", "4", "--ddp")
    assert list(expected) == [1, 2, 3, 4]
    assert trained(name, "--steps", "4") == pytest.approx(expected, rel=1e-4)


def test_hocket_train_launches_an_example() -> None:
    launcher = (BIN / "hocket", "train", "--plan", "caramel", "--timeline", "cnn.json")
    run = trained("cnn", "--steps", "16", launcher=launcher)
    assert list(run) == list(range(1, 17))
    timeline, _ = load_timeline("cnn.json")
    assert {lane.process for lane in timeline.lanes} == {"worker 0", "worker 1"}
    assert compare(timeline, timeline).measured.steps > 1


def test_a_killed_training_goes_on_from_its_checkpoint() -> None:
    expected = trained("resnet18_cifar", "--steps", "6", "--ddp")
    killed = ("--steps", "6", "--checkpoint", "r.pt", "--checkpoint-every", "4", "--fail-at", "6")
    run = trained("resnet18_cifar", *killed, launcher=(BIN / "hocket", "train"))
    assert Path("r.failed").exists()
    assert run == pytest.approx(expected, rel=1e-4)
