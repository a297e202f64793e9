"""ResNet v1 (He et al., "Deep residual learning", 2015) and v2 ("Identity mappings", 2016), as in TF-Slim.

All map images (N, 3, 224, 224) to logits (N, num_classes). As in TF-Slim a stage halves the image in its last
unit, where the papers do so in the first of the next, and an identity shortcut is then subsampled.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional

from hocket.models.layers import (
    BatchNorm,
    ConvNorm,
    GlobalAveragePool,
    apply,
    initialize,
    max_pool_3x3,
    named_sequence,
)

_EPS = 1e-5  # TF-Slim's `resnet_arg_scope`
_STAGE_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4  # a unit's output channels to its width
_UNITS_50, _UNITS_101, _UNITS_152 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)


def resnet50_v1(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `resnet_v1_50`."""
    return _resnet_v1(_UNITS_50, num_classes)


def resnet101_v1(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `resnet_v1_101`."""
    return _resnet_v1(_UNITS_101, num_classes)


def resnet50_v2(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `resnet_v2_50`."""
    return _resnet_v2(_UNITS_50, num_classes)


def resnet101_v2(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `resnet_v2_101`."""
    return _resnet_v2(_UNITS_101, num_classes)


def resnet152_v2(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `resnet_v2_152`."""
    return _resnet_v2(_UNITS_152, num_classes)


class BottleneckV1(nn.Module):
    """Shortcut plus 1x1, 3x3, 1x1, each convolution normalized, the sum rectified."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = _EXPANSION * width
        self.shortcut = (
            _subsample(stride)
            if channels == out_channels
            else ConvNorm(channels, out_channels, 1, stride=stride, eps=_EPS, relu=False)
        )
        self.residual = nn.Sequential(
            ConvNorm(channels, width, 1, eps=_EPS),
            ConvNorm(width, width, 3, stride=stride, eps=_EPS),
            ConvNorm(width, out_channels, 1, eps=_EPS, relu=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to (N, 4 * width, H / stride, W / stride)."""
        return functional.relu(apply(self.shortcut, x) + apply(self.residual, x))


class BottleneckV2(nn.Module):
    """Shortcut plus 1x1, 3x3, 1x1 of the normalized input.

    The norm comes first, so the sum itself is neither normalized nor rectified, and the two convolutions that
    feed it (the third and the shortcut's) carry a bias.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = _EXPANSION * width
        self.preactivation = nn.Sequential(BatchNorm(channels, eps=_EPS), nn.ReLU())
        self.projects = channels != out_channels
        self.shortcut = nn.Conv2d(channels, out_channels, 1, stride) if self.projects else _subsample(stride)
        self.residual = nn.Sequential(
            ConvNorm(channels, width, 1, eps=_EPS),
            ConvNorm(width, width, 3, stride=stride, eps=_EPS),
            nn.Conv2d(width, out_channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to (N, 4 * width, H / stride, W / stride)."""
        preactivation = apply(self.preactivation, x)
        shortcut = apply(self.shortcut, preactivation if self.projects else x)
        return shortcut + apply(self.residual, preactivation)


def _resnet_v1(units_per_stage: tuple[int, ...], num_classes: int) -> nn.Module:
    model = named_sequence(
        (
            ("root", ConvNorm(3, 64, 7, stride=2, eps=_EPS)),
            ("pool_root", max_pool_3x3(2)),
            *_stages(BottleneckV1, units_per_stage),
            ("pool", GlobalAveragePool()),
            ("logits", nn.Linear(_EXPANSION * _STAGE_WIDTHS[-1], num_classes)),
        )
    )
    initialize(model)
    return model


def _resnet_v2(units_per_stage: tuple[int, ...], num_classes: int) -> nn.Module:
    out_channels = _EXPANSION * _STAGE_WIDTHS[-1]
    model = named_sequence(
        (
            # The first unit normalizes, so the root convolution has a bias in place of a norm.
            ("root", nn.Conv2d(3, 64, 7, stride=2, padding=3)),
            ("pool_root", max_pool_3x3(2)),
            *_stages(BottleneckV2, units_per_stage),
            ("postnorm", BatchNorm(out_channels, eps=_EPS)),
            ("relu", nn.ReLU()),
            ("pool", GlobalAveragePool()),
            ("logits", nn.Linear(out_channels, num_classes)),
        )
    )
    initialize(model)
    return model


def _stages(
    unit: type[BottleneckV1] | type[BottleneckV2], units_per_stage: tuple[int, ...]
) -> Iterator[tuple[str, nn.Module]]:
    channels = 64
    for stage, (num_units, width) in enumerate(zip(units_per_stage, _STAGE_WIDTHS, strict=True), start=1):
        units = nn.Sequential()
        for index in range(num_units):
            # The last stage keeps its size: 7x7 goes to the pooling.
            halves = index == num_units - 1 and stage < len(_STAGE_WIDTHS)
            units.append(unit(channels, width, 2 if halves else 1))
            channels = _EXPANSION * width
        yield f"stage_{stage}", units


def _subsample(stride: int) -> nn.Module:
    """Every `stride`-th pixel, as a 1x1 max pool."""
    return nn.Identity() if stride == 1 else nn.MaxPool2d(1, stride)
