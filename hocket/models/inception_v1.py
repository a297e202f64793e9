"""Inception v1 and GoogLeNet (Szegedy et al., "Going deeper with convolutions", 2014).

One network, two readings. TF-Slim's `inception_v1`, which TicTac measures, normalizes every convolution and
has 3x3 where the paper has 5x5. `googlenet` is the paper's: biases, local response norm, 5x5. Both leave out
the paper's auxiliary classifiers, as Slim does. Both map images (N, 3, 224, 224) to logits (N, num_classes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from hocket.models.layers import (
    Branches,
    ConvNorm,
    ConvRelu,
    GlobalAveragePool,
    initialize,
    max_pool_3x3,
    named_sequence,
)

# The paper's Table 1: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; pool projection.
_Widths = tuple[int, int, int, int, int, int]
_STAGES: tuple[dict[str, _Widths], ...] = (
    {"mixed_3b": (64, 96, 128, 16, 32, 32), "mixed_3c": (128, 128, 192, 32, 96, 64)},
    {
        "mixed_4b": (192, 96, 208, 16, 48, 64),
        "mixed_4c": (160, 112, 224, 24, 64, 64),
        "mixed_4d": (128, 128, 256, 24, 64, 64),
        "mixed_4e": (112, 144, 288, 32, 64, 64),
        "mixed_4f": (256, 160, 320, 32, 128, 128),
    },
    {"mixed_5b": (256, 160, 320, 32, 128, 128), "mixed_5c": (384, 192, 384, 48, 128, 128)},
)


@dataclass(frozen=True, kw_only=True)
class _Variant:
    conv: type[ConvNorm] | type[ConvRelu]
    large_kernel: int  # of the branch that the paper calls 5x5
    response_norm: bool  # around the stem's second and third convolutions
    last_pool: int  # kernel of the pool before the last stage
    dropout: float


def inception_v1(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `inception_v1`: batch norm after each of 57 convolutions, 3x3 in place of the paper's 5x5."""
    variant = _Variant(conv=ConvNorm, large_kernel=3, response_norm=False, last_pool=2, dropout=0.2)
    return _network(variant, num_classes)


def googlenet(num_classes: int = 1000) -> nn.Module:
    """The paper's GoogLeNet: convolutions with bias, local response norm in the stem, no batch norm."""
    variant = _Variant(conv=ConvRelu, large_kernel=5, response_norm=True, last_pool=3, dropout=0.4)
    return _network(variant, num_classes)


def _network(variant: _Variant, num_classes: int) -> nn.Module:
    model = named_sequence(_layers(variant, num_classes))
    initialize(model)
    return model


def _layers(variant: _Variant, num_classes: int) -> Iterator[tuple[str, nn.Module]]:
    yield "conv_1a", variant.conv(3, 64, 7, stride=2)
    yield "pool_2a", max_pool_3x3(2)
    if variant.response_norm:
        yield "response_norm_2a", nn.LocalResponseNorm(5)
    yield "conv_2b", variant.conv(64, 64, 1)
    yield "conv_2c", variant.conv(64, 192, 3)
    if variant.response_norm:
        yield "response_norm_2c", nn.LocalResponseNorm(5)
    channels = 192
    for stage, modules in enumerate(_STAGES, start=3):
        kernel = variant.last_pool if modules is _STAGES[-1] else 3
        yield f"pool_{stage}a", nn.MaxPool2d(kernel, 2, ceil_mode=True)
        for name, widths in modules.items():
            yield name, _mixed(variant, channels, widths)
            channels = widths[0] + widths[2] + widths[4] + widths[5]
    yield "pool", GlobalAveragePool()
    yield "dropout", nn.Dropout(variant.dropout)
    yield "logits", nn.Linear(channels, num_classes)


def _mixed(variant: _Variant, channels: int, widths: _Widths) -> nn.Module:
    conv = variant.conv
    direct, reduce_3, conv_3, reduce_5, conv_5, projection = widths
    return Branches(
        conv(channels, direct, 1),
        nn.Sequential(conv(channels, reduce_3, 1), conv(reduce_3, conv_3, 3)),
        nn.Sequential(conv(channels, reduce_5, 1), conv(reduce_5, conv_5, variant.large_kernel)),
        nn.Sequential(max_pool_3x3(1), conv(channels, projection, 1)),
    )
