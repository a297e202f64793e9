"""Models that copy their parts while they are built: derived from fake tensors as from real ones."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel

from hocket.errors import HocketError
from hocket.profiler import derive, fake, make_step
from tests.unit.profiler.rows import rows_of

WIDTH = 8


class Decoder(nn.Module):
    """Torch's decoder, which attends to its own input."""

    def __init__(self, is_causal=True):
        super().__init__()
        self.layers = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 2, 16, batch_first=True), 2)
        self.is_causal = is_causal

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layers(x, x, tgt_mask=mask, tgt_is_causal=self.is_causal)


class Whole(nn.Module):
    """Torch's encoder and decoder in one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Transformer(WIDTH, 2, 1, 1, 16, batch_first=True)

    def forward(self, x):
        return self.layers(x, x)


class Teacher(nn.Module):
    """A layer and a running mean of it, as self-distillation has."""

    def __init__(self):
        super().__init__()
        self.student = nn.Linear(WIDTH, WIDTH)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for mine, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                mine.lerp_(new, 0.1)
        return self.student(x) + self.teacher(x)


class Constants(nn.Module):
    """Constants in each form in which a module may hold them."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(WIDTH, WIDTH), torch.tensor(3.0)
        self.register_buffer("mean", torch.tensor([1.0] * WIDTH))
        self.register_buffer("deviation", torch.from_numpy(np.ones(WIDTH, dtype=np.float32)))
        self.shift = nn.Buffer(torch.ones(WIDTH))

    def forward(self, x):
        return self.layer((x - self.mean) / self.deviation * self.scale + self.shift)


class Symmetric(nn.Module):
    """A parametrization by a symmetric matrix."""

    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True), 2)


def cloned():
    layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
    return nn.Sequential(*(copy.deepcopy(layer) for _ in range(3)))


def normalized():
    return copy.deepcopy(nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(WIDTH), nn.Unflatten(0, (4, 6))))


def tied():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    model[1].weight = model[0].weight
    return copy.deepcopy(model)


def parametrized():
    model = nn.Linear(WIDTH, WIDTH)
    nn.utils.parametrize.register_parametrization(model, "weight", Symmetric())
    return copy.deepcopy(nn.Sequential(model, nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))))


def constants():
    return copy.deepcopy(Constants())


def setup_of(build):
    model = build()
    batch = torch.randn(4, 6, WIDTH), torch.randn(4, 6, WIDTH)
    return model, batch, mse_loss, torch.optim.AdamW(model.parameters())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "build", [encoder, Decoder, Whole, cloned, normalized, tied, Teacher, constants, parametrized]
)
def test_a_model_that_copies_its_parts_is_derived(build):
    real = derive(make_step(*setup_of(build)), device="v100")
    with fake():
        made = derive(make_step(*setup_of(build)), device="v100")
    assert rows_of(made) == rows_of(real)
    assert made.parameter_names == real.parameter_names


def test_copies_of_a_setup_keep_what_they_share():
    with fake():
        model, _, _, optimizer = copy.deepcopy(setup_of(tied))
        assert model[0].weight is model[1].weight
        assert isinstance(model[0].weight, nn.Parameter)
        assert optimizer.param_groups[0]["params"][0] is model[0].weight
        mean = AveragedModel(model)
        mean.update_parameters(model)
        assert [name for name, _ in mean.named_parameters()] == [
            f"module.{n}" for n, _ in model.named_parameters()
        ]


def test_copies_have_gradients_and_refuse_results_as_real_ones():
    with fake():
        weight = nn.Parameter(torch.ones(3))
        (2 * weight).sum().backward()
        copied = copy.deepcopy(weight)
        assert copied.grad is not None
        assert copied.grad is not weight.grad
        assert copied.requires_grad
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(2 * weight)


def test_a_tensor_that_only_the_loss_has_is_told_of():
    model, held = nn.Linear(WIDTH, WIDTH), torch.ones(WIDTH)
    batch = torch.randn(4, WIDTH), torch.randn(4, WIDTH)
    step = make_step(model, batch, lambda x, y: mse_loss(held * x, y), None)
    with pytest.raises(HocketError, match=r"uses a tensor that is not in its model, batch or loss module"):
        derive(step, device="v100")


def test_a_mask_that_torch_would_look_at_is_told_of():
    with pytest.raises(
        HocketError, match=r"pass is_causal \(tgt_is_causal to a decoder\) beside the mask, or"
    ):
        derive(make_step(*setup_of(lambda: Decoder(is_causal=None))), device="v100")


def test_torch_is_left_as_it_was():
    with fake():
        pass
    assert "__deepcopy__" not in vars(FakeTensor)
