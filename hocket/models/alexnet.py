"""AlexNet v2 (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014)."""

from __future__ import annotations

from torch import nn

from hocket.models.layers import ConvRelu, initialize


def alexnet_v2(num_classes: int = 1000) -> nn.Module:
    """TF-Slim `alexnet_v2`: five convolutions with bias and three fully connected layers, no norm.

    Maps images (N, 3, 224, 224) to logits (N, num_classes). Slim writes the fully connected layers as
    convolutions that cover their whole input; `nn.Linear` has the same weights and the same arithmetic.
    """
    model = nn.Sequential(
        ConvRelu(3, 64, 11, stride=4, padding=0),
        nn.MaxPool2d(3, 2),
        ConvRelu(64, 192, 5),
        nn.MaxPool2d(3, 2),
        ConvRelu(192, 384, 3),
        ConvRelu(384, 384, 3),
        ConvRelu(384, 256, 3),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(256 * 5 * 5, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, num_classes),
    )
    initialize(model)
    return model
