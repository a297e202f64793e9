"""The models that training is timed with, and factories in their place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hocket.bench.training.timed_models import NAMES, load
from hocket.bench.training.variants import Copy, gradient_bytes
from hocket.errors import HocketError

FACTORY = """
import torch

def fixed():
    model = torch.nn.Linear(4, 2)
    batch = torch.zeros(3, 4), torch.zeros(3, 2)
    return model, batch, torch.nn.MSELoss(), torch.optim.SGD(model.parameters())

def bare(batch_size):
    batch = torch.zeros(batch_size, 4), torch.zeros(batch_size, 2)
    return torch.nn.Linear(4, 2), batch, torch.nn.MSELoss(), None

class Scored(torch.nn.Linear):
    def forward(self, x, y):
        return {"loss": (super().forward(x) - y).pow(2).mean()}

class Stepped(Scored):
    def training_step(self, batch):
        return self(*batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def scored(batch_size):
    model = Scored(4, 2)
    batch = {"x": torch.ones(batch_size, 4), "y": torch.ones(batch_size, 2)}
    return model, batch, None, torch.optim.SGD(model.parameters(), 0.1)

def stepped(batch_size):
    return Stepped(4, 2), (torch.ones(batch_size, 4), torch.ones(batch_size, 2))
"""


@pytest.mark.parametrize(
    ("name", "num_parameters", "size_bytes"),
    [
        ("cnn", 16, 38_033_312),
        ("vgg11", 22, 153_965_984),
        ("gpt", 53, 21_092_352),
        ("resnet18", 62, 46_758_048),
    ],
)
def test_a_model_trains_and_has_its_size(name: str, num_parameters: int, size_bytes: int) -> None:
    setup = load(name, 2, seed=0)
    assert len(list(setup.model.parameters())) == num_parameters
    assert gradient_bytes(setup.model) == size_bytes
    trained = Copy(setup)
    trained.train(1)
    before, after = setup.model.state_dict(), trained.model.state_dict()
    moved = [key for key, value in after.items() if not torch.equal(value, before[key])]
    # Momentum and norms too: every parameter takes part, and the model that was copied does not.
    assert set(dict(trained.model.named_parameters())) <= set(moved)
    assert all(torch.isfinite(value).all() for value in after.values())


def test_a_seed_decides_weights_and_batches_and_weights_alone_whatever_the_batch() -> None:
    one, same, larger, other = (load("gpt", size, seed) for size, seed in ((2, 1), (2, 1), (4, 1), (2, 2)))
    weights = [setup.model.state_dict()["head.weight"] for setup in (one, same, larger, other)]
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], weights[3])
    assert torch.equal(one.batch[0], same.batch[0])
    assert not torch.equal(one.batch[0], other.batch[0])


def test_names_are_those_of_the_models() -> None:
    assert NAMES == ("cnn", "vgg11", "gpt", "resnet18")


def test_factories_that_cannot_be_timed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FACTORY)
    assert load(f"{path}:fixed", 3, seed=0).name == "fixed"
    with pytest.raises(HocketError, match=r"batches of 3 where 5 were asked for; .* batch_size"):
        load(f"{path}:fixed", 5, seed=0)
    with pytest.raises(HocketError, match="returned no optimizer"):
        load(f"{path}:bare", 5, seed=0)
    with pytest.raises(HocketError, match="returned a LightningModule, whose step is not timed"):
        load(f"{path}:stepped", 5, seed=0)


def test_a_model_that_returns_its_loss_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FACTORY)
    setup = load(f"{path}:scored", 3, seed=0)
    trained = Copy(setup)
    losses = []
    for _ in range(3):
        losses.append(trained.model(**setup.batch)["loss"].item())
        trained.train(1)
    assert losses[0] > losses[1] > losses[2]


def test_steps_that_clip_have_gradients_of_a_norm_of_one() -> None:
    setup = load("cnn", 2, seed=0)
    norms = []
    for clip in (False, True):
        trained = Copy(setup, clip=clip)
        trained.train(1)
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in trained.model.parameters()]))
    assert norms[1] == pytest.approx(min(1.0, float(norms[0])), rel=1e-4)
    assert norms[0] > 1.0
