"""From a name or a file to a step, and one line for whatever is wrong with it."""

import subprocess
import sys

import pytest
import torch

from hocket import models
from hocket.errors import HocketError
from hocket.profiler import derive, fake, load, make_step, profile
from hocket.profiler.derived_target import load_target
from tests.unit.profiler.rows import rows_of

GOOD = """
import torch
from torch import nn
from neighbour import WIDTH

def build(batch_size=3):
    model = nn.Linear(WIDTH, 2)
    batch = torch.randn(batch_size, WIDTH), torch.randint(2, (batch_size,))
    return model, batch, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)

def plain():
    return build()
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "neighbour.py").write_text("WIDTH = 4\n")

    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return path

    return write


def refusal(target, batch_size=2):
    with pytest.raises(HocketError) as caught:
        load(str(target), batch_size)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_zoo_model_is_loaded_for_training_or_inference():
    with fake():
        setup = load("vgg11", 3)
    assert setup.name == "vgg11"
    assert setup.batch[0].shape == (3, 3, 224, 224)
    assert setup.model.training
    with fake():
        assert not load("vgg11", 3, training=False).model.training


def test_a_file_is_given_the_batch_size_if_it_takes_one(write):
    path = write(GOOD)
    with_batch_size, without = load(f"{path}:build", 5), load(f"{path}:plain", 5)
    assert (with_batch_size.name, len(with_batch_size.batch[0])) == ("build", 5)
    assert (without.name, len(without.batch[0])) == ("plain", 3)
    assert (with_batch_size.batch_size, without.batch_size) == (5, None)
    assert profile(*with_batch_size[:4], steps=1, warmup=1).batch_size == 5


def test_nobody_says_a_batch_size_and_the_functions_own_default_holds(write):
    others = ("bare(batch_size)", "none(batch_size=None)")
    path = write(GOOD + "\n".join(f"def {other}: return build(batch_size)" for other in others))
    found = [load(f"{path}:{name}") for name in ("build", "bare", "none")]
    assert [(setup.batch_size, len(setup.batch[0])) for setup in found] == [(3, 3), (32, 32), (32, 32)]
    assert load_target(f"{path}:build", None).batch_size == 3


def test_a_file_derives_without_memory(write):
    with fake():
        setup = load(f"{write(GOOD)}:build", 10**12)
    assert derive(make_step(*setup[:4])).batch_size == 10**12


LAZY = """
import torch
from torch import nn

def build(batch_size):
    model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Linear(5, 3))
    batch = torch.randn(batch_size, 4), torch.randint(3, (batch_size,))
    return model, batch, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)
"""


def test_lazy_layers_get_their_shapes_from_a_forward_pass(write):
    target = f"{write(LAZY)}:build"
    measured = profile(*load(target, 2)[:4], steps=1, warmup=1)
    assert measured.parameter_names[:3] == ("0.weight", "0.bias", "1.weight")
    assert measured.parameter_bytes[:3].tolist() == [80, 20, 20]
    assert sum(name.startswith("update/") for name in measured.operation_names) == 6
    assert rows_of(derive(make_step(*load(target, 2)[:4]))) == rows_of(measured)
    with fake():
        assert "build makes lazy layers, and no step is derived without their sizes" in refusal(target)


def test_the_import_path_is_left_as_it_was(write):
    before = list(sys.path)
    load(f"{write(GOOD)}:build", 1)
    assert sys.path == before


def test_an_unknown_model_lists_the_valid_ones():
    message = refusal("resnet50v1")
    assert message.startswith("model 'resnet50v1' is unknown; did you mean 'resnet50_v1'? choose one of: ")
    assert all(name in message for name in (*models.names(), "FILE.py:FACTORY"))
    assert message.endswith("torchvision's resnet50 too: resnet50_v1 and resnet50_v2 are others")


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("def build(:\n  pass", "build", "mine.py, line 1: invalid syntax"),
        (
            "x = 1\nimport no_such_thing",
            "build",
            "raised ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("raise SystemExit(3)", "build", "raised SystemExit: 3"),
        (
            "x = 1",
            "build",
            "mine.py defines no function that takes nothing, or batch_size alone; define build in",
        ),
        (
            "from glob import glob\ndef train(epochs): pass",
            "build",
            "mine.py defines no function that takes nothing, or batch_size alone; define build in it",
        ),
        (
            "from glob import glob\nfrom os import getcwd\nclass Net: pass\ndef train(epochs): pass\n"
            "def build(batch_size, *, width=3): pass\ndef plain(width=3, *rest, **more): pass\n"
            "def evaluate(batch_size, model): pass",
            "job",
            "function 'job' is unknown; choose one of: build, plain",
        ),
        (GOOD, "built", "function 'built' is unknown; did you mean 'build'? choose one of: build, plain"),
        (GOOD, "", "function '' is unknown; choose one of: build, plain"),
        ("def build():\n    return 1 / 0", "build", "build raised ZeroDivisionError: division by zero"),
        (
            "def build(bs):\n    pass",
            "build",
            "build needs bs; a factory is called with batch_size alone, or with nothing: name its parameter",
        ),
        (
            "def build(batch_size, width, *, depth, bias=True):\n    pass",
            "build",
            "build needs width and depth;",
        ),
        (
            "def build(batch_size, /):\n    pass",
            "build",
            "build raised TypeError: build() got some positional",
        ),
        ("def build():\n    assert False", "build", "build raised AssertionError"),
        ("def build():\n    return None", "build", "returned a NoneType; a factory returns (model, batch,"),
        (
            "def build():\n    return 1, 2, 3",
            "build",
            "returned 3 values (int, int, int); a factory returns (model, batch,",
        ),
        (
            "def build():\n    return 1, (2, 3), max, None",
            "build",
            "returned a int as model; return a torch.nn",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), torch.zeros(2), max, None",
            "build",
            "batch is a Tensor, without targets for the loss; give (inputs, targets), or loss None where",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), [torch.zeros(2)], max, None",
            "build",
            "batch is a list of 1, without targets for the loss",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), None, None, None",
            "build",
            "batch is a NoneType; give a tensor, a dict, a pair (inputs, targets), a longer tuple",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), iter(()), None, None",
            "build",
            "the tuple_iterator gives no batch; give it data",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), (1 / 0 for _ in '1'), None, None",
            "build",
            "the first batch of the generator raised ZeroDivisionError: division by zero",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity()",
            "build",
            "returned a Identity; a factory returns (model, batch, loss, optimizer), loss None where",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), (1, 2)",
            "build",
            "returned 2 values (Identity, tuple); a factory returns",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), (1, 2), 'mse', None",
            "build",
            "returned a str as loss; loss is a function",
        ),
        (
            "import torch\ndef build():\n    return torch.nn.Identity(), (1, 2), max, 'sgd'",
            "build",
            "returned a str as optimizer; return a torch.optim.Optimizer or None",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(write, text, function, message):
    assert message in refusal(f"{write(text)}:{function}")


def test_what_is_wrong_with_a_target_is_said_in_one_line(tmp_path):
    assert refusal(tmp_path / "none.py:build").endswith(
        "none.py is not a file; give the path of a Python file as FILE.py:FACTORY"
    )
    assert refusal("mine.py") == "'mine.py' names no function; write mine.py:FACTORY"
    assert refusal("vgg11", batch_size=0) == "batch size 0 is too small; a batch has at least 1 sample"


def test_without_torch_the_package_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import hocket\n"
        "try: hocket.profile\n"
        "except hocket.HocketError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "torch is not installed; pip install '.[torch]' in a clone of Hocket\n"


def test_importing_hocket_imports_no_torch():
    code = "import sys, hocket; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_device_reaches_the_batch():
    with torch.device("meta"):
        assert load("lstm_ptb", 2).batch[0].device.type == "meta"
