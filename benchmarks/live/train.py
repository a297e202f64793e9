"""A rank of a job that trains: python train.py MODEL WIDTH BATCH STEPS, with torchrun's environment.

Small networks on synthetic data, one thread. The gradients of a step leave together when it has computed, in
chunks, and the next step waits for all of them: that is what the simulator takes a job to do. ``linear``
computes next to nothing and pauses instead, for a moment: it is there to measure the network with.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hocket
from hocket.graph.plan import Plan, Reduction
from hocket.models.gpt import GPT2

IMAGE = (3, 32, 32)
CLASSES = 10
VOCABULARY, CONTEXT = 1024, 64
FEATURES = 1000
PAUSE_S = 0.02
CHUNK_BYTES = 0.5e6  # after which a preemptive policy may let another job go first
LEARNING_STEPS = 8  # of fewer the loss need not fall


def mlp(width: int) -> nn.Module:
    """A perceptron with two hidden layers."""
    hidden = (nn.Linear(3072, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, CLASSES))


def cnn(width: int) -> nn.Module:
    """Three convolutions, each normalized and pooled, and two fully connected layers."""
    layers: list[nn.Module] = []
    for channels, out_channels in pairwise((3, width, 2 * width, 4 * width)):
        convolution = nn.Conv2d(channels, out_channels, 3, padding=1)
        layers += [convolution, nn.BatchNorm2d(out_channels), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(64 * width, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )


def gpt(width: int) -> nn.Module:
    """A GPT-2 of three layers."""
    return GPT2(vocabulary=VOCABULARY, context=CONTEXT, width=width, num_heads=4, num_layers=3)


def linear(width: int) -> nn.Module:
    """One layer of 1000 x ``width`` weights."""
    return nn.Linear(FEATURES, width, bias=False)


def images(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, *IMAGE), torch.randint(CLASSES, (batch,))


def texts(batch: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCABULARY, (batch, CONTEXT + 1))
    return tokens[:, :-1], tokens[:, 1:]


def features(batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, FEATURES), torch.zeros(batch, dtype=torch.int64)


class Model(NamedTuple):
    build: Callable[[int], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    pause_s: float = 0.0


MODELS = {
    "mlp": Model(mlp, images),
    "cnn": Model(cnn, images),
    "gpt": Model(gpt, texts),
    "linear": Model(linear, features, PAUSE_S),
}


def gradient_bytes(name: str, width: int) -> int:
    """What a step of the model sends."""
    with torch.device("meta"):
        return sum(parameter.numel() * 4 for parameter in MODELS[name].build(width).parameters())


def main() -> None:
    """Train for the steps that are asked for; over more than a few of them the loss has to fall."""
    name = sys.argv[1]
    width, batch, steps = map(int, sys.argv[2:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = MODELS[name].build(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    together = Reduction(
        parameters=tuple(parameter for parameter, _ in model.named_parameters()),
        chunks=math.ceil(gradient_bytes(name, width) / CHUNK_BYTES),
    )
    plan = Plan(
        policy="together", model=name, architecture="allreduce", reductions=(together,), compute_order=None
    )
    # Ranks draw the same parameters; sending them would be a transfer that no policy knows of.
    model, optimizer = hocket.distribute(model, optimizer, plan=plan, init_sync=False)
    torch.manual_seed(1 + dist.get_rank())
    inputs, targets = MODELS[name].batch(batch)
    losses = []
    for _ in range(steps):
        time.sleep(MODELS[name].pause_s)
        loss = cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.hocket.flush()
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
    dist.destroy_process_group()
    if steps >= LEARNING_STEPS and not losses[-1] < losses[0]:
        raise SystemExit("the loss did not fall")


if __name__ == "__main__":
    main()
