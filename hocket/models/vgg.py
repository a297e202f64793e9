"""VGG (Simonyan & Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014).

All map images (N, 3, 224, 224) to logits (N, classes): stages of 3x3 convolutions with bias and no norm, each
stage closed by a 2x2 max pool, then three fully connected layers.
"""

from __future__ import annotations

from torch import nn

from hocket.models.layers import ConvRelu, initialize

_STAGE_CHANNELS = (64, 128, 256, 512, 512)


def vgg11(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `vgg_a`: the paper's configuration A, 11 weight layers."""
    return _vgg((1, 1, 2, 2, 2), num_classes)


def vgg16(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `vgg_16`: the paper's configuration D, 16 weight layers."""
    return _vgg((2, 2, 3, 3, 3), num_classes)


def vgg19(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `vgg_19`: the paper's configuration E, 19 weight layers."""
    return _vgg((2, 2, 4, 4, 4), num_classes)


def vgg19_22k() -> nn.Module:
    """VGG-19 over ImageNet-22K's 21841 classes, 229 million parameters: iBatch's largest network."""
    return vgg19(num_classes=21841)


def _vgg(convs_per_stage: tuple[int, ...], num_classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    in_channels = 3
    for num_convs, channels in zip(convs_per_stage, _STAGE_CHANNELS, strict=True):
        for _ in range(num_convs):
            layers.append(ConvRelu(in_channels, channels, 3))
            in_channels = channels
        layers.append(nn.MaxPool2d(2, 2))
    model = nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, num_classes),
    )
    initialize(model)
    return model
