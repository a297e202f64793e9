"""Scripts that wait for ranks that nobody starts: refused where that can be told, and ended by a stop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.graph import load_step

pytestmark = pytest.mark.slow

LIMIT_S = 90
SLEEPER = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(500)
"""
CHILD = f"""
import os, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", {SLEEPER!r}], stdout=subprocess.PIPE, start_new_session=True
)
child.stdout.readline()
"""
BLOCKED = (
    "import torch.distributed as dist\n"
    + CHILD
    + """
os.environ["WORLD_SIZE"] = "2"
print(child.pid, flush=True)
dist.init_process_group("gloo")
"""
)
WAITING = (
    CHILD
    + """
try:
    print(child.pid, flush=True)
    time.sleep(500)
finally:
    print("cleaned", flush=True)
"""
)
THREAD = (
    CHILD
    + """
import threading
threading.Thread(target=time.sleep, args=(500,)).start()
print(child.pid, flush=True)
time.sleep(500)
"""
)
ASKED = """
import os, signal
import torch
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
model = torch.nn.Linear(4, 5)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(99):
    if step == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

class Linear(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

trainer = Trainer(devices=2, strategy="ddp", accelerator="cpu", max_epochs=9, logger=False)
trainer.fit(Linear(), DataLoader(TensorDataset(torch.randn(64, 4)), 4))
"""


@pytest.fixture
def profiling(tmp_path):
    """Starts ``hocket profile`` of a script, in a folder where it may write; ends it behind the test."""
    started = []

    def start(text):
        (tmp_path / "train.py").write_text(text)
        environment = {name: value for name, value in os.environ.items() if name != "RANK"}
        process = subprocess.Popen(
            [sys.executable, "-m", "hocket", "profile", "train.py", "--steps", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_trainer_of_lightning_for_two_processes_is_refused(profiling):
    pytest.importorskip("lightning")
    process = profiling(LIGHTNING)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2, err
    assert err.splitlines()[-1] == (
        "hocket: train.py, line 18, raised ValueError: You set `devices=2` and `num_nodes=1` in Lightning,"
        " but the product (2 * 1) does not match the world size (1); a script runs here as the only rank:"
        " give devices=1, or start all ranks: torchrun --nproc-per-node 2 --no-python hocket profile train.py"
    )


def test_all_ranks_of_a_trainer_of_lightning_are_profiled_together(tmp_path):
    pytest.importorskip("lightning")
    (tmp_path / "train.py").write_text(LIGHTNING)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
    run = subprocess.run(
        [sys.executable, *torchrun, sys.executable, "-m", "hocket", "profile", "train.py", "--steps", "1"],
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert run.returncode == 0, run.stderr
    graph = load_step(tmp_path / "step.json")
    assert (graph.model, graph.batch_size, graph.num_samples) == ("Linear", 4, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("text", "prints"),
    [(BLOCKED, ""), (WAITING, "cleaned\n"), (THREAD, "")],
    ids=["blocked in C++", "in Python", "with a thread that stays"],
)
def test_a_stop_ends_a_script_and_what_it_started(profiling, tmp_path, text, prints, number):
    process = profiling(text)
    child = int(process.stdout.readline())
    try:
        time.sleep(1)  # until it waits
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
        assert not is_alive(child)
    finally:
        if is_alive(child):
            os.kill(child, signal.SIGKILL)
    assert (process.returncode, out) == (128 + number, prints), err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_script_that_handles_a_stop_and_goes_on_is_measured(profiling, tmp_path):
    process = profiling(ASKED)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "asked\n"), err
    assert load_step(tmp_path / "step.json").num_samples == 1


def test_a_stop_of_a_process_that_was_forked_is_none_of_its_parent():
    program = """
import multiprocessing, time
from hocket.cli import stoppable
from hocket.signals import unwinding

stoppable._GRACE_S = 0.2

def command():
    with stoppable.Stoppable():
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(500,))
        child.start()
        time.sleep(0.5)
        child.terminate()
        child.join()
        time.sleep(1)
    print("done", child.exitcode)
    raise SystemExit(0)

unwinding(command)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S)
    assert (run.returncode, run.stdout) == (0, "done 143\n"), run.stderr
