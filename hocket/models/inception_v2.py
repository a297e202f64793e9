"""Inception v2 (Ioffe & Szegedy, "Batch normalization", 2015), as TF-Slim's `inception_v2`."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from hocket.models.layers import (
    BatchNorm,
    Branches,
    ConvNorm,
    GlobalAveragePool,
    average_pool_3x3,
    initialize,
    max_pool_3x3,
    named_sequence,
)

# 1x1; 3x3 reduce, 3x3; double 3x3 reduce, double 3x3; pool projection.
_Widths = tuple[int, int, int, int, int, int]
_STAGE_4: dict[str, _Widths] = {
    "mixed_4b": (224, 64, 96, 96, 128, 128),
    "mixed_4c": (192, 96, 128, 96, 128, 128),
    "mixed_4d": (160, 128, 160, 128, 160, 96),
    "mixed_4e": (96, 128, 192, 160, 192, 96),
}


def inception_v2(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `inception_v2`: two 3x3 for each 5x5, batch norm throughout, a separable first convolution.

    Maps images (N, 3, 224, 224) to logits (N, num_classes).
    """
    model = named_sequence(_layers(num_classes))
    initialize(model)
    return model


def _layers(num_classes: int) -> Iterator[tuple[str, nn.Module]]:
    yield "conv_1a", _separable_stem()
    yield "pool_2a", max_pool_3x3(2)
    yield "conv_2b", ConvNorm(64, 64, 1)
    yield "conv_2c", ConvNorm(64, 192, 3)
    yield "pool_3a", max_pool_3x3(2)
    yield "mixed_3b", _mixed(192, (64, 64, 64, 64, 96, 32), average_pool_3x3())
    yield "mixed_3c", _mixed(256, (64, 64, 96, 64, 96, 64), average_pool_3x3())
    yield "mixed_4a", _reduction(320, (128, 160), (64, 96))
    for name, widths in _STAGE_4.items():
        yield name, _mixed(576, widths, average_pool_3x3())
    yield "mixed_5a", _reduction(576, (128, 192), (192, 256))
    yield "mixed_5b", _mixed(1024, (352, 192, 320, 160, 224, 128), average_pool_3x3())
    yield "mixed_5c", _mixed(1024, (352, 192, 320, 192, 224, 128), max_pool_3x3(1))
    yield "pool", GlobalAveragePool()
    yield "dropout", nn.Dropout(0.2)
    yield "logits", nn.Linear(1024, num_classes)


def _separable_stem() -> nn.Module:
    """7x7 per input channel (8 filters each), then 1x1 across; only the pair is normalized."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 7, stride=2, padding=3, groups=3, bias=False),
        nn.Conv2d(24, 64, 1, bias=False),
        BatchNorm(64),
        nn.ReLU(),
    )


def _mixed(channels: int, widths: _Widths, pool: nn.Module) -> nn.Module:
    direct, reduce, single, reduce_double, double, projection = widths
    return Branches(
        ConvNorm(channels, direct, 1),
        nn.Sequential(ConvNorm(channels, reduce, 1), ConvNorm(reduce, single, 3)),
        nn.Sequential(
            ConvNorm(channels, reduce_double, 1),
            ConvNorm(reduce_double, double, 3),
            ConvNorm(double, double, 3),
        ),
        nn.Sequential(pool, ConvNorm(channels, projection, 1)),
    )


def _reduction(channels: int, single: tuple[int, int], double: tuple[int, int]) -> nn.Module:
    """Halves the image. A pair is a branch's (reduce, out), for the single and the double 3x3."""
    return Branches(
        nn.Sequential(ConvNorm(channels, single[0], 1), ConvNorm(single[0], single[1], 3, stride=2)),
        nn.Sequential(
            ConvNorm(channels, double[0], 1),
            ConvNorm(double[0], double[1], 3),
            ConvNorm(double[1], double[1], 3, stride=2),
        ),
        max_pool_3x3(2),
    )
