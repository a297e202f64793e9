"""Training scripts as they are: what is measured, how they are ended, and what is said where that fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hocket.errors import HocketError
from hocket.graph import load_step
from hocket.profiler import profile, profile_script
from hocket.profiler.profiled_script import model_of
from tests.unit.profiler.rows import classified, perceptron, rows_of

pytestmark = pytest.mark.slow

NEEDED = 1 + 3 + 1 + 2 * 2
LIMIT_S = 200

TRAIN = """
import argparse, os, sys
import torch
import torch.distributed as dist
from neighbour import CLASSES
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, CLASSES))

    def forward(self, x):
        return self.layers(x)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--ddp", action="store_true")
    args = parser.parse_args()
    print(os.path.basename(sys.argv[0]), sys.argv[1:], os.environ["RANK"], os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    net = Net()
    model = DistributedDataParallel(net) if args.ddp else net
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    done = 0
    try:
        while done < args.steps:
            images, labels = torch.randn(2, 4), torch.randint(CLASSES, (2,))
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
    finally:
        print("steps", done)
        dist.destroy_process_group()
"""


LEFT_OUT = "torch.compile is left out: operations are seen, and take longer, uncompiled"


@pytest.fixture
def script(tmp_path):
    (tmp_path / "neighbour.py").write_text("CLASSES = 3\n")

    def write(text):
        path = tmp_path / "train.py"
        path.write_text(text)
        return path

    return write


def hocket(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hocket", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1", **environment},
    )


def but_of_others(lines):
    """Lines without those on programs that use the machine as well, as other tests do."""
    return [line for line in lines if "other programs use" not in line and "so do not decide" not in line]


def expected_rows():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    rows = rows_of(profile(model, classified(), cross_entropy, optimizer, steps=1, warmup=1))
    renamed = {}
    for name, row in rows.items():
        phase, place, *rest = name.split("/")
        path = place if place == "loss" or not rest else f"layers.{place}"
        renamed["/".join((phase, path, *rest))] = row
    return renamed


@pytest.mark.parametrize("ddp", [False, True])
def test_a_script_is_measured_and_ended(script, tmp_path, ddp):
    path = script(TRAIN)
    options = ["--ddp"] if ddp else []
    run = hocket("profile", path, "--steps", 2, "-o", "here.json", "--", *options, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [f"train.py {options} 0 1", f"steps {NEEDED - 1}"]
    first, ended, written = but_of_others(run.stderr.splitlines())
    assert first == f"{path}: measuring the SGD of a Net"
    assert ended == f"{path} was ended after its steps were measured"
    assert written.startswith("here.json: 26 operations, 4 parameters, batch size 2; they sum to ")
    graph = load_step(tmp_path / "here.json")
    assert (graph.model, graph.num_samples) == ("Net", 2)
    assert rows_of(graph).keys() == expected_rows().keys()


@pytest.mark.parametrize(
    "compiled",
    ["model = torch.compile(net)", "net.compile(); model = net", "model = torch.compile(lambda x: net(x))"],
)
@pytest.mark.parametrize("disabled", ["0", pytest.param("1", marks=pytest.mark.long)])
def test_what_a_script_compiles_is_measured_as_the_plain_scripts(script, tmp_path, compiled, disabled):
    text = TRAIN.replace("model = DistributedDataParallel(net) if args.ddp else net", compiled)
    text = text.replace("model.parameters()", "net.parameters()")
    run = hocket("profile", script(text), "--steps", 1, cwd=tmp_path, TORCH_COMPILE_DISABLE=disabled)
    assert run.returncode == 0, run.stderr
    left_out, first, *_ = run.stderr.splitlines()
    assert left_out == f"{tmp_path}/train.py: {LEFT_OUT}"
    assert first == f"{tmp_path}/train.py: measuring the SGD of a Net"
    assert "Warning" not in run.stderr
    graph = load_step(tmp_path / "step.json")
    assert graph.caveat.startswith("the step was measured without the script's torch.compile")
    assert rows_of(graph).keys() == expected_rows().keys()


def test_by_default_the_file_is_step_json(script, tmp_path):
    run = hocket("profile", script(TRAIN), "--steps", 1, "--batch-size", 7, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert load_step(tmp_path / "step.json").batch_size == 7
    assert ", batch size 7 as you say (its inputs hold 2); " in run.stderr


def test_other_ranks_write_nothing(script, tmp_path):
    run = hocket(
        *("profile", script(TRAIN.replace('"gloo"', '"gloo", store=dist.HashStore(), rank=0, world_size=1'))),
        *("--steps", 1),
        cwd=tmp_path,
        RANK="1",
        WORLD_SIZE="2",
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == "train.py [] 1 2"
    assert not (tmp_path / "step.json").exists()


def test_threads_and_processes_that_a_script_leaves_do_not_keep_it(script, tmp_path):
    text = TRAIN.replace(
        "    done = 0\n",
        "    done = 0\n"
        "    import multiprocessing, threading, time\n"
        "    threading.Thread(target=time.sleep, args=(500,)).start()\n"
        "    multiprocessing.get_context('spawn').Process(target=time.sleep, args=(500,)).start()\n",
    )
    run = hocket("profile", script(text), "--steps", 1, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert load_step(tmp_path / "step.json").num_samples == 1


def test_a_script_that_is_too_short_ends_in_a_line(script, tmp_path):
    run = hocket("profile", script(TRAIN), "--steps", 2, "--", "--steps", 3, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout.splitlines()[-1] == "steps 3"
    assert but_of_others(run.stderr.splitlines())[1:] == [
        f"hocket: {tmp_path}/train.py ended, after 3 of {NEEDED} optimizer steps that are needed;"
        " let it train longer, or lower --steps"
    ]
    assert not (tmp_path / "step.json").exists()


def refusal(path, **options):
    with pytest.raises(HocketError) as caught:
        profile_script(path, [], **({"steps": 1, "batch_size": None, "tell": lambda line: None} | options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


SHORT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step(model=model):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""


def test_the_steps_that_are_told_of_on_the_way_are_those_of_the_end(script):
    told = []
    path = script(SHORT + "for _ in range(4): step()")
    said = refusal(path, progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 7), (3, 7), (4, 7)]
    assert "after 4 of 7 optimizer steps that are needed" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (", "train.py, line 1: '(' was never closed; mend the file's syntax"),
        (
            "def job(): pass",
            "train.py ended, and no optimizer stepped in this process (others that it starts",
        ),
        ("raise SystemExit(3)", "train.py ended with status 3, and no optimizer stepped"),
        ("import sys\nsys.exit('no data')", "train.py ended with status no data, and no optimizer stepped"),
        (
            "import math\n\nmath.sqrt(-1)",
            "train.py, line 3, raised ValueError: math domain error, and no optimizer stepped",
        ),
        (
            SHORT + "step()\nstep()\nassert False",
            "train.py, line 11, raised AssertionError, after 2 of 7 optimizer steps that are needed",
        ),
        (
            SHORT + "model.hocket = None\nfor _ in range(9): step()",
            "train.py: the model is one of hocket.distribute, which measures it by itself; save",
        ),
        (
            SHORT + "layers = list(model)\ndel model, step.__defaults__\n"
            "for _ in range(9):\n"
            "    layers[2](layers[0](torch.randn(2, 4))).sum().backward()\n"
            "    optimizer.step()",
            "train.py: no module holds all 4 parameters of the first optimizer that steps, a SGD; put what",
        ),
        (
            SHORT + "optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=4)\n"
            "def closure():\n"
            "    optimizer.zero_grad()\n"
            "    loss = model(torch.ones(2, 4)).pow(2).sum()\n"
            "    loss.backward()\n"
            "    return loss\n"
            "for _ in range(9): optimizer.step(closure)",
            "train.py: LBFGS calls the model several times in a step",
        ),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(script, text, said):
    arguments, main, path = list(sys.argv), sys.modules["__main__"], list(sys.path)
    assert f"/{said}" in refusal(script(text))
    assert (sys.argv, sys.modules["__main__"], sys.path) == (arguments, main, path)
    assert "RANK" not in os.environ


def test_a_script_that_is_not_there_is_refused(tmp_path):
    path = tmp_path / "none.py"
    assert refusal(path) == f"{path} is not a file; give the path of a Python file"


def test_a_script_may_leave_its_folder(script, tmp_path):
    text = TRAIN.replace("    done = 0\n", "    done = 0\n    os.chdir('/')\n")
    run = hocket("profile", script(text), "--steps", 1, "-o", "step.json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert load_step(tmp_path / "step.json").num_samples == 1


def test_a_script_that_does_not_end_when_asked_is_measured_all_the_same(script):
    text = SHORT + "for _ in range(40):\n    try: step()\n    except BaseException: pass"
    found = []
    measured = profile_script(script(text), [], steps=1, batch_size=None, tell=found.append)
    assert measured.profile.graph.num_samples == 1
    assert but_of_others(found) == ["measuring the SGD of a Sequential"]


def test_options_for_what_is_no_script_are_refused(script, tmp_path):
    path = script(SHORT)
    for options, said in [
        (("--inference",), "--inference: a script runs as it is"),
        (("--device", "v100"), "--device v100: a script runs as it is"),
    ]:
        run = hocket("profile", path, *options, cwd=tmp_path)
        assert (run.returncode, run.stdout) == (2, "")
        assert said in run.stderr
    run = hocket("profile", "vgg11", "--", "--lr", "3", cwd=tmp_path)
    assert "--lr: arguments are for a script, and vgg11 is none" in run.stderr


def test_methods_of_other_models_are_not_called():
    def refuse(*_, **__):
        raise RuntimeError("asked")

    other, model = perceptron(), perceptron()
    other.named_parameters = other.parameters = other.modules = refuse
    assert model_of(torch.optim.SGD(model.parameters(), 0.1)) is model


def test_the_model_is_the_outermost_with_the_fewest_other_parameters():
    class Trainer(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

    inner = perceptron()
    model = Trainer(inner)
    everything = nn.ModuleDict({"model": model, "teacher": nn.Linear(4, 3)})
    assert model_of(torch.optim.SGD(inner.parameters(), 0.1)) is model
    assert model_of(torch.optim.SGD(inner[0].parameters(), 0.1)) is inner[0]
    assert model_of(torch.optim.SGD(everything.parameters(), 0.1)) is everything


WATCHED = """
import torch
import torch.distributed as dist
import hocket
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
handle = WATCH
torch.manual_seed(dist.get_rank())
for _ in range(12):
    images, labels = torch.randn(2, 4), torch.randint(3, (2,))
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    optimizer.step()
total = float(sum(p.double().sum() for p in model.parameters()))
with open(f"rank{dist.get_rank()}.txt", "w") as file:  # two ranks' lines may meet within a line of one pipe
    file.write(f"{total!r} {handle and handle.error}")
dist.destroy_process_group()
"""


def test_rank_0_of_several_writes_and_all_train_as_ever(script, tmp_path):
    written = []
    for watch in ("hocket.watch(model, optimizer, steps=2)", "None"):
        run = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
                *("--no-python", sys.executable, script(WATCHED.replace("WATCH", watch))),
            ],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "GLOO_SOCKET_IFNAME": "lo"},
        )
        assert run.returncode == 0, run.stderr
        written.append([(tmp_path / f"rank{rank}.txt").read_text() for rank in range(2)])
    assert written[0] == written[1]  # the same weights, and no error
    graph = load_step(tmp_path / "step.json")
    assert (graph.num_operations, graph.batch_size, graph.num_samples) == (26, 2, 2)


ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
import hocket

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = DataLoader(TensorDataset(torch.randn(160, 4), torch.randint(3, (160,))), 4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
handle = hocket.watch(model, optimizer, steps=2)
for features, labels in data:
    with accelerator.accumulate(model):
        accelerator.backward(cross_entropy(model(features), labels))
        optimizer.step()
        optimizer.zero_grad()
print(handle.is_over, handle.error)
"""


def test_a_loop_of_accelerate(script, tmp_path):
    pytest.importorskip("accelerate")
    run = subprocess.run(
        [sys.executable, script(ACCELERATE)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert (run.returncode, run.stdout) == (0, "True None\n"), run.stderr
    assert load_step(tmp_path / "step.json").batch_size == 8


LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    def training_step(self, batch, index):
        features, labels = batch
        loss = cross_entropy(self.layers(features), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9, foreach=False)

data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
trainer = Trainer(
    max_epochs=9, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, strategy=STRATEGY,
)
trainer.fit(Classifier(), DataLoader(data, 4))
"""


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_a_trainer_of_lightning(script, tmp_path, strategy):
    pytest.importorskip("lightning")
    path = script(LIGHTNING.replace("STRATEGY", repr(strategy)))
    run = hocket("profile", path, "--steps", 2, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert f"{path}: measuring the SGD of a Classifier" in run.stderr
    graph = load_step(tmp_path / "step.json")
    assert graph.batch_size == 4
    rows = rows_of(graph)
    produced = {parameter for _, _, produces in rows.values() for parameter in produces}
    assert produced == {f"layers.{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")}
    assert sum(name.startswith("update/layers.") for name in rows) == 12  # as without Lightning


TRANSFORMERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=30, n_positions=16)
model = GPT2LMHeadModel(config)
data = [{"input_ids": (tokens := torch.randint(30, (6,))), "labels": tokens} for _ in range(200)]
args = TrainingArguments(
    output_dir=OUTPUT, per_device_train_batch_size=3, gradient_accumulation_steps=2, max_steps=90,
    report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
)
Trainer(model=model, args=args, train_dataset=data).train()
"""


def test_a_trainer_of_transformers(script, tmp_path):
    pytest.importorskip("transformers")
    path = script(TRANSFORMERS.replace("OUTPUT", repr(str(tmp_path / "out"))))
    run = hocket("profile", path, "--steps", 2, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert f"{path}: measuring the AdamW of a GPT2LMHeadModel" in run.stderr
    graph = load_step(tmp_path / "step.json")
    assert graph.batch_size == 6
    produced = {parameter for _, _, produces in rows_of(graph).values() for parameter in produces}
    assert produced == set(graph.parameter_names)
