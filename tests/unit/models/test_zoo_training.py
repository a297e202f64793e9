"""Every model trains: a gradient for every trainable tensor, as real numbers where that is cheap enough."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hocket import models
from hocket.models.gpt import GPT2
from hocket.models.layers import BatchNorm, cross_entropy
from hocket.models.lstm import LanguageLSTM
from hocket.models.transformer import SelfAttention
from hocket.models.vit import VisionTransformer

# Real steps, with the batch size, for what fits the suite's time; others are deeper or wider copies of these,
# or take a fake step and a real one at toy size. Inception v3's auxiliary head normalizes one pixel, hence 2.
REAL = {
    "inception_v1": 1,
    "inception_v2": 1,
    "inception_v3": 2,
    "resnet50_v1": 1,
    "resnet50_v2": 1,
    "resnet18": 1,
    "googlenet": 1,
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def backward(setup: models.TrainingSetup) -> torch.Tensor:
    inputs, targets = setup.batch
    loss = setup.loss(setup.model(inputs), targets)
    loss.backward()
    return loss


def assert_finite_gradients(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("name", REAL)
def test_a_real_step_gives_every_tensor_a_finite_gradient(name):
    setup = models.make(name, REAL[name])
    loss = backward(setup)
    assert loss.shape == ()
    assert loss.isfinite()
    assert_finite_gradients(setup.model)


@pytest.mark.parametrize(
    "toy",
    [
        pytest.param(lambda: GPT2(vocabulary=50, context=16, width=32, num_heads=4, num_layers=2), id="gpt2"),
        pytest.param(lambda: LanguageLSTM(vocabulary=50, width=16, num_layers=2), id="lstm"),
    ],
)
def test_a_toy_language_model_gives_every_tensor_a_finite_gradient(toy):
    torch.manual_seed(0)
    model = toy()
    inputs, targets = torch.randint(50, (2, 2, 16))
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(50), abs=0.3)  # an untrained model guesses uniformly
    assert_finite_gradients(model)


def test_a_toy_vision_transformer_gives_every_tensor_a_finite_gradient():
    torch.manual_seed(0)
    model = VisionTransformer(image=32, patch=8, width=32, num_heads=4, num_layers=2, num_classes=50)
    loss = cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.randint(50, (4,)))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(50), abs=0.5)
    assert_finite_gradients(model)


def test_attention_looks_ahead_unless_it_is_causal():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8)
    later = x.clone()
    later[0, 3] += 1.0
    for causal in (True, False):
        attention = SelfAttention(8, 2, causal=causal)
        same = torch.isclose(attention(x), attention(later)).all(dim=2)[0]
        assert same.tolist() == [causal, causal, causal, False]


@pytest.mark.parametrize("name", models.names())
def test_a_fake_step_gives_every_tensor_a_gradient(name):
    with FakeTensorMode():
        setup = models.make(name, 2)
        loss = backward(setup)
        setup.optimizer.step()
    assert loss.shape == ()
    for parameter_name, parameter in setup.model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.shape == parameter.shape, parameter_name


@pytest.mark.parametrize("name", models.names())
def test_evaluation_gives_one_tensor_of_logits_and_a_loss(name):
    with torch.device("meta"), torch.no_grad():
        model, (inputs, targets), loss, _ = models.make(name, 2, training=False)
        logits = model(inputs)
    assert logits.shape == (*targets.shape, models.spec(name).num_classes)
    assert loss(logits, targets).shape == ()


def test_sgd_lowers_the_loss_of_a_repeated_batch():
    setup = models.make("inception_v1", 2)
    losses = []
    for _ in range(4):
        setup.optimizer.zero_grad()
        losses.append(backward(setup).item())
        setup.optimizer.step()
    assert losses[-1] < losses[0]


def test_inception_v3s_auxiliary_loss_counts_four_tenths():
    _, (_, targets), loss, _ = models.make("inception_v3", 2)
    logits, auxiliary = torch.randn(2, 2, 1000)
    main, extra = loss(logits, targets), loss(auxiliary, targets)
    torch.testing.assert_close(loss((logits, auxiliary), targets), main + 0.4 * extra)


def test_batch_norm_is_torchs_with_its_scale_held_at_one():
    x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    ours, theirs = BatchNorm(3), torch.nn.BatchNorm2d(3, eps=1e-3)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_gpt2_does_not_look_ahead():
    torch.manual_seed(0)
    model = GPT2(vocabulary=50, context=16, width=32, num_heads=4, num_layers=2)
    tokens = torch.randint(50, (2, 16))
    changed = tokens.clone()
    changed[:, 8:] = (changed[:, 8:] + 1) % 50
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])
