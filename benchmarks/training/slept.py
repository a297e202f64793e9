"""The models of ``hocket bench train``, sleeping for their computing: what is left is what the schedule does.

    hocket bench train --model benchmarks/training/slept.py:gpt --rho 1 --rate 250mbit

Real training on a machine whose cores are shared with others takes a tenth longer now and then, on one rank
or the other, and every step waits for the slower one. Here layers have the parameters, gradients, buffers and
optimizers of the models they stand for, in the order in which those use them, and sleep for as long as
``_RATE`` takes for their multiplications; what is between layers takes no time. Transfers, hooks, copies and
optimizers are real.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hocket.bench.training.timed_models import load
from hocket.profiler import StepSetup

Given = tuple[nn.Module, tuple[Tensor, Tensor], Any, Any]

_RATE = 30e9  # multiplications and additions a second, the order of one core
_SEED = 0


def cnn(batch_size: int) -> Given:
    """``cnn``, asleep."""
    return _slept("cnn", batch_size)


def vgg11(batch_size: int) -> Given:
    """``vgg11``, asleep."""
    return _slept("vgg11", batch_size)


def gpt(batch_size: int) -> Given:
    """``gpt``, asleep."""
    return _slept("gpt", batch_size)


def resnet18(batch_size: int) -> Given:
    """``resnet18``, asleep."""
    return _slept("resnet18", batch_size)


class _Sleep(torch.autograd.Function):
    """Passes on what it is given after ``forward_s``, and gradients, of ones, after twice that."""

    @staticmethod
    def forward(ctx: Any, forward_s: float, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.forward_s = forward_s
        ctx.save_for_backward(*parameters)
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        time.sleep(2 * ctx.forward_s)
        (gradient,) = given
        return (None, gradient, *map(torch.ones_like, ctx.saved_tensors))


class _Layer(nn.Module):
    """Has the parameters and buffers of ``layer`` and takes ``sample_s`` a sample, forward."""

    def __init__(self, layer: nn.Module, sample_s: float) -> None:
        super().__init__()
        self.sample_s = sample_s
        self._parameters.update(layer._parameters)
        self._buffers.update(layer._buffers)

    def forward(self, x: Tensor) -> Tensor:
        """Passes ``x`` (N, 1) on."""
        own = self.parameters(recurse=False)
        slept: Tensor = _Sleep.apply(self.sample_s * len(x), x, *own)
        return slept


def _slept(name: str, batch_size: int) -> Given:
    real = load(name, 1, _SEED)
    layers = nn.Sequential(*(_Layer(layer, work / _RATE) for layer, work in _used(real)))
    batch = torch.ones(batch_size, 1, requires_grad=True), torch.ones(batch_size, 1)
    return layers, batch, functional.mse_loss, real.optimizer  # parameters are the same


def _used(setup: StepSetup) -> list[tuple[nn.Module, float]]:
    """Layers that have parameters, in the order of their use, with additions and multiplications a sample."""
    found: list[tuple[nn.Module, float]] = []

    def note(layer: nn.Module, _: Any, out: Tensor) -> None:
        found.append((layer, 2.0 * out.numel() * _products(layer)))

    handles = [
        layer.register_forward_hook(note) for layer in setup.model.modules() if list(layer.parameters(False))
    ]
    with torch.no_grad():
        setup.model(setup.batch[0])
    for handle in handles:
        handle.remove()
    return found


def _products(layer: nn.Module) -> float:
    """Multiplications for each number that comes out."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight[0].numel() if isinstance(layer, nn.Linear | nn.Conv2d) else 1.0
