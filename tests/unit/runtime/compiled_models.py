"""Models, and what stands in for the runtime, for the tests of compiled steps."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hocket.runtime.compiled.compiled_model import compile_model

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def fresh():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(before)


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 4))


class Cnn(nn.Sequential):
    def __init__(self):
        first = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)]
        super().__init__(*first, *second, nn.Flatten(), nn.Linear(8, 4))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Dropout(0.2))
        self.out = nn.Linear(16, 11)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return self.out(x + self.mlp(self.norms[1](x))).flatten(0, 1)


class Broken(nn.Module):
    """Three graphs with eager code between them; some parameters are frozen, unused, or read twice."""

    def __init__(self):
        super().__init__()
        self.twice, self.plain, self.eager = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.out, self.unused, self.frozen = nn.Linear(8, 4), nn.Linear(2, 2), nn.Linear(8, 8)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = self.read_eagerly(self.frozen(self.twice(x).relu()))
        x = self.plain(x).relu() + self.twice(x)
        torch._dynamo.graph_break()
        return self.out(x)

    @torch._dynamo.disable
    def read_eagerly(self, x):
        return self.eager(x) + self.plain.weight.detach().norm()


def batches(make):
    seeded = torch.Generator().manual_seed(1)
    for _ in range(4):
        if make is Transformer:
            inputs = torch.randint(0, 11, (4, 5), generator=seeded)
        else:
            inputs = torch.randn((6, 3, 8, 8) if make is Cnn else (6, 8), generator=seeded)
        yield inputs, torch.randint(0, 4, (20 if make is Transformer else 6,), generator=seeded)


class Hooks:
    def __init__(self, model):
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.order = None
        self.gradients = []
        self.reads = []

    def gradient(self, parameter, gradient):
        self.gradients.append((parameter, gradient.clone()))

    def first_read(self, parameters):
        self.reads += [self.names[parameter] for parameter in parameters]

    def gradient_order(self):
        return self.order

    def reported_names(self):
        """The names of the parameters whose gradients came in the last backward pass, each once and right."""
        assert all(torch.equal(gradient, p.grad) for p, gradient in self.gradients)
        names = [self.names[parameter] for parameter, _ in self.gradients]
        assert len(set(names)) == len(names)
        self.gradients.clear()
        return names


def make_model(make):
    torch.manual_seed(0)
    return make()


def compiled(make, **options):
    model = make_model(make)
    hooks = Hooks(model)
    return model, hooks, compile_model(model, hooks, **options)


def train(model, make, after_backward=lambda: None):
    """Losses and gradients of each step, and all that the model holds after the last."""
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    history = []
    for inputs, targets in batches(make):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        after_backward()
        history.append([loss.detach(), *(p.grad for p in model.parameters())])
        optimizer.step()
    return history, list(model.state_dict().values())


def assert_same(one, other):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif one is None:
        assert other is None
    else:
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)


def backward(model, loss=torch.sum):
    model.zero_grad()
    loss(model(X)).backward()
