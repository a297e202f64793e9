"""ResNet-18 (He et al., "Deep residual learning", 2015, Table 1), with the norms that PyTorch's users have.

Differs from the other ResNets here, TF-Slim's: norms train a scale, and a stage halves the image in its first
unit, as in the paper. Images are (N, 3, height, width) of any size from 32 x 32 on.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from hocket.models.layers import GlobalAveragePool, apply, named_sequence

_STAGE_WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, each normalized, added to their input (He et al., 2015, Figure 5 left)."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, channels, H, W) to (N, out_channels, H / stride, W / stride)."""
        return functional.relu(apply(self.residual, x) + apply(self.shortcut, x))


def resnet18(num_classes: int = 1000) -> nn.Module:
    """The network of 18 layers, two blocks a stage."""
    root = (
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
    )
    stages: list[tuple[str, nn.Module]] = []
    channels = 64
    for stage, width in enumerate(_STAGE_WIDTHS, start=1):
        first = BasicBlock(channels, width, stride=1 if channels == width else 2)
        stages.append((f"stage_{stage}", nn.Sequential(first, BasicBlock(width, width, stride=1))))
        channels = width
    logits = nn.Linear(channels, num_classes)
    return named_sequence(
        (("root", nn.Sequential(*root)), *stages, ("pool", GlobalAveragePool()), ("logits", logits))
    )
