"""The models that training is timed with: small images and short texts, so that a step fits in two cores.

They differ in what decides how much of their communication can be hidden: where the bytes are. ``cnn`` and
``vgg11`` have most of them in fully connected layers, whose gradients are ready first and needed last;
``resnet18`` has them spread over its depth; ``gpt``'s embedding is ready last and needed first.

Images are (N, 3, 64, 64) with 1000 classes, texts (N, 64) tokens of 4096. No dropout: every step computes the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from hocket.errors import HocketError, UnknownNameError
from hocket.models.layers import apply, cross_entropy, initialize
from hocket.models.resnet18 import resnet18
from hocket.models.transformer import Block
from hocket.profiler import StepSetup, first_extent, trains_itself
from hocket.profiler import load as load_factory

_CLASSES = 1000
_VOCABULARY = 4096
_CONTEXT = 64


def load(target: str, batch_size: int, seed: int) -> StepSetup:
    """A model named in :data:`NAMES`, or ``FILE.py:FACTORY``, with its optimizer and a batch.

    ``seed`` decides weights and batch; weights do not depend on ``batch_size``.

    Raises
    ------
    HocketError
        For an unknown name, and a factory that gives no optimizer or batches of another size.
    """
    torch.manual_seed(seed)
    if target not in _MODELS:
        return _from_factory(target, batch_size)
    build, make_optimizer, make_batch = _MODELS[target]
    model = build()
    return StepSetup(model, make_batch(batch_size), cross_entropy, make_optimizer(model), target, batch_size)


def check_name(target: str) -> None:
    """Refuse what is neither one of :data:`NAMES` nor ``FILE.py:FACTORY``."""
    if target not in _MODELS and not target.rpartition(":")[0].endswith(".py"):
        raise UnknownNameError("model", target, (*NAMES, "FILE.py:FACTORY"))


def _from_factory(target: str, batch_size: int) -> StepSetup:
    check_name(target)
    setup = load_factory(target, batch_size)
    if setup.optimizer is None:
        raise HocketError(f"{target} returned no optimizer; training is timed with one")
    if setup.loss is None and trains_itself(setup.model):
        raise HocketError(
            f"{target} returned a LightningModule, whose step is not timed; return a loss with it"
        )
    held = first_extent(setup.batch)
    if held not in (None, batch_size):
        raise HocketError(
            f"{target} makes batches of {held} where {batch_size} were asked for; have it take a"
            " batch_size, or give --batch-size"
        )
    return setup


class GPT(nn.Module):
    """A pre-norm decoder with learned positions; the output layer has weights of its own."""

    def __init__(self, *, width: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(_VOCABULARY, width)
        self.position_embedding = nn.Embedding(_CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads, causal=True) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens (N, T) int64, T at most 64, to logits (N, T, 4096)."""
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        x = apply(self.token_embedding, tokens) + apply(self.position_embedding, positions)
        return apply(self.head, apply(self.norm, apply(self.blocks, x)))


def _cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for channels, out_channels in pairwise((3, 32, 64, 128)):
        convolution = nn.Conv2d(channels, out_channels, 3, padding=1)
        layers += [convolution, nn.BatchNorm2d(out_channels), nn.ReLU(), nn.MaxPool2d(2)]
    head = (nn.Flatten(), nn.Linear(128 * 8 * 8, 1024), nn.ReLU(), nn.Linear(1024, _CLASSES))
    return nn.Sequential(*layers, *head)


def _vgg11() -> nn.Module:
    """Configuration A (Simonyan & Zisserman, 2014), its classifier cut to what 64 x 64 pixels leave."""
    layers: list[nn.Module] = []
    channels = 3
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for out_channels in stage:
            layers += [nn.Conv2d(channels, out_channels, 3, padding=1), nn.ReLU()]
            channels = out_channels
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.Flatten())
    for features, out_features in pairwise((512 * 2 * 2, 4096, 4096)):
        layers += [nn.Linear(features, out_features), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(4096, _CLASSES))
    # Without norms torch's own draw lets activations shrink from layer to layer until nothing is left.
    initialize(model)
    return model


def _gpt() -> nn.Module:
    return GPT(width=256, num_heads=4, num_layers=4)


def _sgd(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.01, momentum=0.9)


def _adamw(model: nn.Module) -> Optimizer:
    return AdamW(model.parameters(), lr=3e-4)


def _images(batch_size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, 64, 64), torch.randint(_CLASSES, (batch_size,))


def _texts(batch_size: int) -> tuple[Tensor, Tensor]:
    shape = (batch_size, _CONTEXT)
    return torch.randint(_VOCABULARY, shape), torch.randint(_VOCABULARY, shape)


class _Model(NamedTuple):
    build: Callable[[], nn.Module]
    make_optimizer: Callable[[nn.Module], Optimizer]
    make_batch: Callable[[int], tuple[Tensor, Tensor]]


_MODELS = {
    "cnn": _Model(_cnn, _sgd, _images),
    "vgg11": _Model(_vgg11, _sgd, _images),
    "gpt": _Model(_gpt, _adamw, _texts),
    "resnet18": _Model(resnet18, _sgd, _images),
}
NAMES = tuple(_MODELS)
