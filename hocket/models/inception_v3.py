"""Inception v3 (Szegedy et al., "Rethinking the Inception architecture", 2015), TF-Slim's `inception_v3`."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from hocket.models.layers import (
    Branches,
    ConvNorm,
    GlobalAveragePool,
    Size,
    apply,
    average_pool_3x3,
    cross_entropy,
    initialize,
    named_sequence,
)

_AUXILIARY_WEIGHT = 0.4  # of the auxiliary head's loss, as in TF-Slim


class InceptionV3(nn.Module):
    """TF-Slim `inception_v3` with its auxiliary head, which takes part in training only."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.lower = named_sequence(_lower_layers())
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, 3),
            ConvNorm(768, 128, 1),
            ConvNorm(128, 768, 5, padding=0),
            nn.Flatten(),
            nn.Linear(768, num_classes),
        )
        self.upper = named_sequence(_upper_layers(num_classes))
        initialize(self)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Maps images (N, 3, 299, 299) to logits (N, num_classes).

        In training mode it gives (logits, auxiliary logits), both of that shape, and raises `ValueError` if N
        is 1: the auxiliary head normalizes a single pixel per image.
        """
        x = apply(self.lower, images)
        logits = apply(self.upper, x)
        return (logits, apply(self.auxiliary, x)) if self.training else logits


def loss(outputs: Tensor | tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    """Cross entropy against targets (N,), plus 0.4 of the auxiliary head's in training mode."""
    if isinstance(outputs, Tensor):
        return cross_entropy(outputs, targets)
    logits, auxiliary_logits = outputs
    return cross_entropy(logits, targets) + _AUXILIARY_WEIGHT * cross_entropy(auxiliary_logits, targets)


def _lower_layers() -> Iterator[tuple[str, nn.Module]]:
    """Up to the auxiliary head's branch point: (N, 3, 299, 299) to (N, 768, 17, 17)."""
    yield "conv_1a", ConvNorm(3, 32, 3, stride=2, padding=0)
    yield "conv_2a", ConvNorm(32, 32, 3, padding=0)
    yield "conv_2b", ConvNorm(32, 64, 3)
    yield "pool_3a", nn.MaxPool2d(3, 2)
    yield "conv_3b", ConvNorm(64, 80, 1)
    yield "conv_4a", ConvNorm(80, 192, 3, padding=0)
    yield "pool_5a", nn.MaxPool2d(3, 2)
    yield "mixed_5b", _mixed_35x35(192, projection=32)
    yield "mixed_5c", _mixed_35x35(256, projection=64)
    yield "mixed_5d", _mixed_35x35(288, projection=64)
    yield "mixed_6a", _reduction_to_17x17()
    for name, width in (("mixed_6b", 128), ("mixed_6c", 160), ("mixed_6d", 160), ("mixed_6e", 192)):
        yield name, _mixed_17x17(width)


def _upper_layers(num_classes: int) -> Iterator[tuple[str, nn.Module]]:
    """From there to the logits."""
    yield "mixed_7a", _reduction_to_8x8()
    yield "mixed_7b", _mixed_8x8(1280)
    yield "mixed_7c", _mixed_8x8(2048)
    yield "pool", GlobalAveragePool()
    yield "dropout", nn.Dropout(0.2)
    yield "logits", nn.Linear(2048, num_classes)


def _chain(channels: int, *convs: tuple[int, Size]) -> nn.Sequential:
    """Convolutions of (width, kernel) one after another, the image's size kept."""
    chain = nn.Sequential()
    for width, kernel in convs:
        chain.append(ConvNorm(channels, width, kernel))
        channels = width
    return chain


def _mixed_35x35(channels: int, *, projection: int) -> nn.Module:
    return Branches(
        _chain(channels, (64, 1)),
        _chain(channels, (48, 1), (64, 5)),
        _chain(channels, (64, 1), (96, 3), (96, 3)),
        nn.Sequential(average_pool_3x3(), ConvNorm(channels, projection, 1)),
    )


def _reduction_to_17x17() -> nn.Module:
    return Branches(
        ConvNorm(288, 384, 3, stride=2, padding=0),
        _chain(288, (64, 1), (96, 3)).append(ConvNorm(96, 96, 3, stride=2, padding=0)),
        nn.MaxPool2d(3, 2),
    )


def _mixed_17x17(width: int) -> nn.Module:
    """`width` is that of the factorized 7x7 branches' inner convolutions."""
    row, column = (1, 7), (7, 1)
    return Branches(
        _chain(768, (192, 1)),
        _chain(768, (width, 1), (width, row), (192, column)),
        _chain(768, (width, 1), (width, column), (width, row), (width, column), (192, row)),
        nn.Sequential(average_pool_3x3(), ConvNorm(768, 192, 1)),
    )


def _reduction_to_8x8() -> nn.Module:
    row, column = (1, 7), (7, 1)
    return Branches(
        _chain(768, (192, 1)).append(ConvNorm(192, 320, 3, stride=2, padding=0)),
        _chain(768, (192, 1), (192, row), (192, column)).append(ConvNorm(192, 192, 3, stride=2, padding=0)),
        nn.MaxPool2d(3, 2),
    )


def _mixed_8x8(channels: int) -> nn.Module:
    return Branches(
        _chain(channels, (320, 1)),
        _chain(channels, (384, 1)).append(_split_3x3(384)),
        _chain(channels, (448, 1), (384, 3)).append(_split_3x3(384)),
        nn.Sequential(average_pool_3x3(), ConvNorm(channels, 192, 1)),
    )


def _split_3x3(channels: int) -> nn.Module:
    """A 3x3 taken apart into a row and a column side by side: doubles the channels."""
    return Branches(ConvNorm(channels, channels, (1, 3)), ConvNorm(channels, channels, (3, 1)))
