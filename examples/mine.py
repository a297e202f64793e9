"""A small convolutional network, as ``hocket profile`` takes it: a function that returns one training step.

    hocket profile examples/mine.py:job --batch-size 32 -o step.json
    hocket tune step.json --workers 2 --bandwidth 1Gbit/s

Most of its 22 MB are in the first fully connected layer. Its gradient is ready early in the backward pass,
and DistributedDataParallel sends it together with all that come later; parameter servers that send it first
keep the convolutions waiting. So the order of transfers decides how long a step takes.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CLASSES = 1000


class Net(nn.Module):
    """Four convolutions, each normalized and pooled, and two fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, out_channels in itertools.pairwise((3, 32, 64, 128, 256)):
            layers.append(nn.Conv2d(channels, out_channels, 3, padding=1))
            layers += [nn.BatchNorm2d(out_channels), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classes = nn.Sequential(nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        """Maps images (N, 3, 64, 64) to logits (N, CLASSES)."""
        return self.classes(self.features(images))


def job(batch_size: int) -> tuple:
    """A model, a batch, a loss and an optimizer."""
    model = Net()
    batch = torch.randn(batch_size, 3, 64, 64), torch.randint(CLASSES, (batch_size,))
    return model, batch, cross_entropy, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
