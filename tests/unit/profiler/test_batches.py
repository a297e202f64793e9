"""Batches and losses as PyTorch code has them: each makes the step that its training loop would run."""

from collections import OrderedDict, UserDict

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from hocket.errors import HocketError
from hocket.profiler import derive, fake, load, make_step, profile
from tests.unit.profiler.rows import classified, perceptron, rows_of, total


def steps_of(model, batch, loss, **options):
    """The rows of the step and its batch size."""
    graph = profile(model, batch, loss, None, steps=1, warmup=1, **options)
    return rows_of(graph), graph.batch_size


class Scored(nn.Module):
    """Takes features and labels by name and returns its loss as ``returns`` has it, as transformers do."""

    def __init__(self, returns):
        super().__init__()
        self.layers = perceptron()
        self.returns = returns

    def forward(self, features, labels=None):
        outputs = self.layers(features)
        return outputs if labels is None else self.returns(cross_entropy(outputs, labels), outputs)


class Outputs(OrderedDict):
    """A mapping with attributes, as a ModelOutput is."""

    def __getattr__(self, name):
        return self[name]


class Named:
    def __init__(self, loss):
        self.loss = loss


FORMS = [
    lambda loss, _: loss,
    lambda loss, _: loss[None],
    lambda loss, outputs: {"loss": loss, "logits": outputs},
    lambda loss, outputs: Outputs(loss=loss, logits=outputs),
    lambda loss, _: Named(loss),
    lambda loss, outputs: (loss, outputs),
    lambda loss, outputs: (outputs, loss),
    lambda loss, outputs: [outputs, loss.detach(), loss],
]


@pytest.mark.parametrize("returns", FORMS)
def test_a_model_returns_its_loss(returns):
    features, labels = classified(5)
    batch = {"features": features, "labels": labels}
    rows, batch_size = steps_of(Scored(returns), batch, None)
    assert batch_size == 5
    assert "forward/cross_entropy_loss" not in rows  # dispatched as what it is made of
    assert [name for _, _, produces in rows.values() for name in produces] == [
        *("layers.2.weight", "layers.2.bias", "layers.0.weight", "layers.0.bias"),
    ]
    assert steps_of(Scored(returns), (features, labels), None) == (rows, 5)  # all of a tuple is the model's
    assert steps_of(Scored(returns), UserDict(batch), None) == (rows, 5)  # as a tokenizer's


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (lambda loss, outputs: outputs, "a tensor of shape [2, 3]"),
        (lambda loss, outputs: {"logits": outputs}, "a dict of logits"),
        (lambda loss, outputs: Named(None), "a Named"),
        (lambda loss, outputs: (loss.detach(), outputs), "a tuple"),
        (lambda loss, outputs: None, "a NoneType"),
    ],
)
def test_a_model_without_a_loss_is_refused_in_one_line(returns, said):
    with pytest.raises(HocketError) as caught:
        steps_of(Scored(returns), classified(), None)
    assert str(caught.value).startswith(
        f"the model returned {said}, and no loss was given; let it return its"
    )


def test_a_mapping_with_a_loss_is_its_targets_too():
    features, labels = classified(4)
    batch = {"x": features, "y": labels}

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = perceptron()

        def forward(self, x, y):
            return self.layers(x)

    rows, batch_size = steps_of(Named(), batch, lambda outputs, batch: cross_entropy(outputs, batch["y"]))
    expected, _ = steps_of(Named(), ({"x": features, "y": labels}, labels), cross_entropy)
    assert (rows, batch_size) == (expected, 4)


class Summed(nn.Module):
    """Adds up what it gets, a layer for each."""

    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 3) for _ in range(count))

    def forward(self, *inputs):
        return sum(layer(x) for layer, x in zip(self.layers, inputs, strict=True))


def test_the_last_of_a_longer_tuple_is_the_targets():
    a, b, targets = torch.randn(6, 4), torch.randn(6, 4), torch.randn(6, 3)
    longer = steps_of(Summed(2), (a, b, targets), mse_loss)
    assert longer == steps_of(Summed(2), ((a, b), targets), mse_loss)
    assert longer[1] == 6
    inference = steps_of(Summed(2), (a, b, targets), None, inference=True)
    assert set(inference[0]) == {
        "forward/layers.0/addmm",
        "forward/layers.1/addmm",
        "forward/add",
        "forward/add.2",
    }


def test_a_tensor_is_the_models_only_argument():
    class Spread(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x).pow(2).mean()

    rows, batch_size = steps_of(Spread(), torch.randn(7, 4), None)
    assert ("forward/mean" in rows, batch_size) == (True, 7)
    assert steps_of(Spread(), [torch.randn(7, 4)], None) == (rows, 7)  # as a TensorDataset's loader gives it


def test_of_a_loader_the_first_batch_is_taken():
    taken = []

    def batches():
        for size in (3, 5):
            taken.append(size)
            yield classified(size)

    expected = steps_of(perceptron(), classified(3), cross_entropy)
    assert steps_of(perceptron(), batches(), cross_entropy) == expected
    assert taken == [3]
    loader = DataLoader(TensorDataset(*classified(9)), batch_size=3, shuffle=True, num_workers=1)
    assert steps_of(perceptron(), loader, cross_entropy) == expected


LOADED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build(batch_size):
    model = nn.Linear(4, 3)
    data = TensorDataset(torch.randn(40, 4), torch.randint(3, (40,)))
    loader = DataLoader(data, batch_size, shuffle=True)
    return model, loader, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)
"""


def test_a_factory_with_a_loader_is_measured_and_derived(tmp_path):
    (tmp_path / "mine.py").write_text(LOADED)
    target = f"{tmp_path / 'mine.py'}:build"
    measured = profile(*load(target, 8)[:4], steps=1, warmup=1)
    with fake():
        setup = load(target, 8)
    derived = derive(make_step(*setup[:4]))
    assert rows_of(derived) == rows_of(measured)
    assert derived.batch_size == measured.batch_size == 8
    unbuilt = DataLoader(TensorDataset(*classified(9)), batch_size=3)
    assert derive(make_step(perceptron(), unbuilt, total, None)).batch_size == 3


LIGHTNING = """
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

class Classifier(LightningModule):
    def __init__(self, configured=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        self.configured = configured

    def training_step(self, batch, batch_idx):
        features, labels = batch
        loss = cross_entropy(self.layers(features), labels)
        self.log("loss", loss, prog_bar=True)
        self.log_dict({"index": batch_idx})
        return {"loss": loss}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        if self.configured is not None:
            return self.configured(optimizer)
        return optimizer

class Brief(Classifier):
    def training_step(self, batch):
        return super().training_step(batch, 0)

def loader(batch_size):
    return DataLoader(TensorDataset(torch.randn(40, 4), torch.randint(3, (40,))), batch_size)

def build(batch_size):
    return Classifier(), loader(batch_size)

def brief():
    return Brief(), loader(8)

def scheduled():
    schedule = torch.optim.lr_scheduler.StepLR
    return Classifier(lambda o: {"optimizer": o, "lr_scheduler": schedule(o, 1)}), loader(8)

def lists():
    schedule = torch.optim.lr_scheduler.StepLR
    return Classifier(lambda o: ([o], [schedule(o, 1)])), loader(8)

def plain():
    module = Classifier()
    return module.layers, loader(8), cross_entropy, module.configure_optimizers()

def two():
    return Classifier(lambda o: [o, o]), loader(8)

def wrong():
    return Classifier(lambda o: "sgd"), loader(8)

def manual():
    module = Classifier()
    module.automatic_optimization = False
    return module, loader(8)

def alone():
    return Classifier()
"""


@pytest.fixture
def lightning(tmp_path):
    pytest.importorskip("lightning")
    path = tmp_path / "module.py"
    path.write_text(LIGHTNING)
    return path


@pytest.mark.parametrize("function", ["build", "brief", "scheduled", "lists"])
@pytest.mark.filterwarnings("error:.*self.log")
def test_a_lightning_module_needs_no_trainer(lightning, function):
    graph = profile(*load(f"{lightning}:{function}", 8)[:4], steps=1, warmup=1)
    assert graph.batch_size == 8
    rows = rows_of(graph)
    expected = rows_of(profile(*load(f"{lightning}:plain", 8)[:4], steps=1, warmup=1))
    assert len(rows) == len(expected)
    assert [reads for _, reads, _ in rows.values()] == [
        [f"layers.{name}" for name in reads] for _, reads, _ in expected.values()
    ]
    assert sum(name.startswith("update/layers.") for name in rows) == 4


def test_a_lightning_module_is_derived(lightning):
    with fake():
        setup = load(f"{lightning}:build", 8)
    measured = profile(*load(f"{lightning}:build", 8)[:4], steps=1, warmup=1)
    assert rows_of(derive(make_step(*setup[:4]))) == rows_of(measured)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            "two",
            "Classifier configures 2 optimizers, and one steps in a profile; return (model, batch, loss,",
        ),
        ("wrong", "Classifier configures a str; configure_optimizers returns a torch.optim.Optimizer"),
        ("manual", "Classifier optimizes by itself (automatic_optimization is False); return (model, batch,"),
        (
            "alone",
            "returned a Classifier; a factory returns (model, batch, loss, optimizer), loss None where",
        ),
    ],
)
def test_a_lightning_module_that_cannot_be_stepped_is_refused(lightning, function, said):
    with pytest.raises(HocketError) as caught:
        load(f"{lightning}:{function}", 8)
    assert str(caught.value).startswith(f"{lightning}:{function}: {said}")


def test_a_model_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=30, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(30, (3, 6))
    batch = transformers.BatchEncoding({"input_ids": tokens, "labels": tokens})
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    graph = profile(model, batch, None, optimizer, steps=1, warmup=1)
    assert graph.batch_size == 3
    produced = {name for _, _, produces in rows_of(graph).values() for name in produces}
    assert produced == {name for name, _ in model.named_parameters()}
