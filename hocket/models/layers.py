"""Blocks that several families use: the scale-free batch norm, convolutions, branches, pooling.

Images are NCHW, float32. The blocks follow the TF-Slim definitions that TicTac's Table 1 counts: a normalized
convolution has a weight and no bias, and its batch norm trains one vector (the offset, no scale).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

Size = int | tuple[int, int]


class BatchNorm(nn.Module):
    """Batch normalization that trains an offset and no scale (TF-Slim `batch_norm`, `scale=False`)."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, *, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to the same; raises `ValueError` in training mode if N * H * W is 1."""
        return functional.batch_norm(
            x, self.running_mean, self.running_var, bias=self.bias, training=self.training, eps=self.eps
        )


class ConvNorm(nn.Sequential):
    """Convolution without bias, `BatchNorm`, ReLU: (N, C_in, H, W) to (N, C_out, H', W').

    `padding=None` keeps the size at stride 1 (TF's SAME). At stride 2 it pads both sides alike, where TF pads
    one more at the end: the output size is the same. `relu=False` leaves the activation to the caller.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: Size,
        *,
        stride: int = 1,
        padding: int | None = None,
        eps: float = 1e-3,
        relu: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel,
            stride,
            same_padding(kernel) if padding is None else padding,
            bias=False,
        )
        self.norm = BatchNorm(out_channels, eps=eps)
        if relu:
            self.relu = nn.ReLU()


class ConvRelu(nn.Sequential):
    """Convolution with bias, ReLU, no norm; arguments as in `ConvNorm`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: Size,
        *,
        stride: int = 1,
        padding: int | None = None,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel, stride, same_padding(kernel) if padding is None else padding
        )
        self.relu = nn.ReLU()


class Branches(nn.ModuleList):
    """Branches side by side, an Inception module's body."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Gives each branch the same (N, C, H, W) and concatenates what they give along the channels."""
        return torch.cat([branch(x) for branch in self], dim=1)


class GlobalAveragePool(nn.Module):
    """Mean over the pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to (N, C)."""
        return x.mean(dim=(2, 3))


def same_padding(kernel: Size) -> Size:
    """The padding that keeps an image's size for an odd kernel at stride 1."""
    return kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)


def max_pool_3x3(stride: int) -> nn.MaxPool2d:
    """3x3 max pooling, TF's SAME: at stride 2, windows start at the first pixel and may overhang the last."""
    return nn.MaxPool2d(3, stride, padding=1) if stride == 1 else nn.MaxPool2d(3, stride, ceil_mode=True)


def average_pool_3x3() -> nn.AvgPool2d:
    """3x3 average pooling at stride 1; like TF, it leaves the padding out of the mean."""
    return nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)


def initialize(model: nn.Module) -> None:
    """Draws weights as Glorot & Bengio (2010), TF-Slim's default, and zeroes biases, in place.

    In the networks without norms He's draw leaves activations so large that SGD at the zoo's learning rate
    diverges.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of logits (..., classes) against class indices (...), over any leading shape."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def named_sequence(stages: Iterable[tuple[str, nn.Module]]) -> nn.Sequential:
    """An `nn.Sequential` whose stages keep their paper's names, so that parameters do too."""
    sequence = nn.Sequential()
    for name, stage in stages:
        sequence.add_module(name, stage)
    return sequence


def apply(module: nn.Module, x: Tensor) -> Tensor:
    """Calls a module that maps one tensor to one tensor; `nn.Module.__call__` itself is untyped."""
    return cast(Tensor, module(x))
