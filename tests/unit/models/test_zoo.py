"""The zoo's table: sizes against the papers, names, and what `make` hands over."""

import importlib
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hocket import models
from hocket.errors import HocketError, UnknownNameError

# TicTac's Table 1: trainable tensors, MiB, standard batch size.
TABLE_1 = {
    "alexnet_v2": (16, 191.89, 512),
    "inception_v1": (116, 25.24, 128),
    "inception_v2": (141, 42.64, 128),
    "inception_v3": (196, 103.54, 32),
    "resnet50_v1": (108, 97.39, 32),
    "resnet101_v1": (210, 169.74, 64),
    "resnet50_v2": (125, 97.45, 64),
    "resnet101_v2": (244, 169.86, 32),
    "vgg16": (32, 527.79, 32),
    "vgg19": (38, 548.05, 32),
}


def size_mib(table: list[models.TrainableTensor]) -> float:
    return sum(row.numel for row in table) * 4 / 2**20


@pytest.mark.parametrize("name", TABLE_1)
def test_counts_mib_and_batch_sizes_are_table_1s(name):
    table = models.parameter_table(name)
    assert (len(table), round(size_mib(table), 2), models.spec(name).default_batch_size) == TABLE_1[name]


def test_resnet152_v2_is_caramels():
    table = models.parameter_table("resnet152_v2")
    assert (len(table), round(size_mib(table), 1)) == (363, 229.5)


@pytest.mark.parametrize(
    ("name", "num_tensors", "num_weights"),
    [
        ("vgg11", 2 * 11, 132_863_336),  # the VGG paper's Table 2: 133 million
        ("resnet18", 3 * 20 + 2, 11_689_512),  # torchvision's resnet18
        ("vgg19_22k", 2 * 19, 229_052_817),  # iBatch: 229M
        ("googlenet", 2 * 58, 6_998_552),
        ("lstm_ptb", 1 + 2 * 4 + 2, 66_034_000),  # Zaremba et al.: 66M
        ("gpt2_small", 2 + 12 * 12 + 2, 124_439_808),
        ("vit_b_16", 4 + 12 * 12 + 4, 86_567_656),  # torchvision's vit_b_16
    ],
)
def test_the_other_models_have_their_papers_sizes(name, num_tensors, num_weights):
    table = models.parameter_table(name)
    assert (len(table), sum(row.numel for row in table)) == (num_tensors, num_weights)


def test_resnet18_has_its_papers_shapes():
    with torch.device("meta"):
        model = models.build("resnet18")
        x, shapes = torch.empty(2, 3, 224, 224), {}
        for name, stage in model.named_children():
            x = stage(x)
            shapes[name] = tuple(x.shape[1:])
    assert [shapes[f"stage_{k}"] for k in (1, 2, 3, 4)] == [
        (64, 56, 56),
        (128, 28, 28),
        (256, 14, 14),
        (512, 7, 7),
    ]
    assert shapes["logits"] == (1000,)
    table = {row.name: row.shape for row in models.parameter_table("resnet18")}
    assert table["root.0.weight"] == (64, 3, 7, 7)
    assert table["stage_4.0.shortcut.0.weight"] == (512, 256, 1, 1)
    assert table["logits.weight"] == (1000, 512)


def test_the_parameter_table_is_the_built_models():
    built = {name: tuple(p.shape) for name, p in models.build("inception_v1").named_parameters()}
    table = models.parameter_table("inception_v1")
    assert {row.name: row.shape for row in table} == built
    assert all(row.numel == torch.Size(row.shape).numel() for row in table)


def test_names_are_the_specs_and_every_description_says_something():
    assert len(models.names()) == len(set(models.names())) == 18
    for name in models.names():
        assert models.spec(name).name == name
        assert models.spec(name).description


@pytest.mark.parametrize("call", [models.build, models.make, models.parameter_table, models.spec])
def test_an_unknown_name_lists_the_valid_ones_and_suggests_the_nearest(call):
    with pytest.raises(UnknownNameError) as caught:
        call("resnet50v2")
    message = str(caught.value)
    assert message.startswith("model 'resnet50v2' is unknown; did you mean 'resnet50_v2'? choose one of: ")
    assert message.endswith(", ".join(models.names()))
    assert "\n" not in message


def test_an_unknown_name_like_no_other_gets_no_suggestion():
    with pytest.raises(HocketError, match=r"^model 'foo' is unknown; choose one of: alexnet_v2, "):
        models.spec("foo")


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_without_samples_is_refused(batch_size):
    with pytest.raises(HocketError, match=rf"^batch_size {batch_size} is too small; .* default of 20$"):
        models.make("lstm_ptb", batch_size)


def test_make_repeats_with_its_seed_and_only_with_it():
    first, again, other = (models.make("inception_v1", 1, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.batch[0], again.batch[0])
    assert torch.equal(first.model.logits.weight, again.model.logits.weight)
    assert not torch.equal(first.batch[0], other.batch[0])
    assert not torch.equal(first.model.logits.weight, other.model.logits.weight)


@pytest.mark.parametrize("name", models.names())
def test_make_takes_the_specs_batch_and_sgd(name):
    with torch.device("meta"):
        model, (inputs, targets), _, optimizer = models.make(name)
    model_spec = models.spec(name)
    batch_size = model_spec.default_batch_size
    assert inputs.shape == (batch_size, *model_spec.input_shape)
    if model_spec.input_kind == "image":
        assert (inputs.dtype, targets.shape) == (torch.float32, (batch_size,))
    else:
        assert (inputs.dtype, targets.shape) == (torch.int64, inputs.shape)
    assert targets.dtype == torch.int64
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]
    assert model.training


def test_every_spec_names_functions_that_exist():
    for name in models.names():
        for path in (models.spec(name).factory, models.spec(name).loss):
            module, _, function = path.partition(":")
            assert callable(getattr(importlib.import_module(f"hocket.models.{module}"), function))


def test_importing_the_zoo_and_reading_its_table_leave_torch_alone():
    script = "import sys, hocket.models as m; m.names(); m.spec('vgg16'); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_fake_mode_builds_without_memory():
    with FakeTensorMode():
        model = models.build("vgg19_22k")
    assert all(type(p.data).__name__ == "FakeTensor" for p in model.parameters())
