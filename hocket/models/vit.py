"""ViT (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hocket.models.layers import apply
from hocket.models.transformer import INIT_STD, Block


class VisionTransformer(nn.Module):
    """Pre-norm encoder of an image's patches and a class token, whose last state is classified.

    No dropout, as when it is trained on large data.
    """

    def __init__(
        self, *, image: int, patch: int, width: int, num_heads: int, num_layers: int, num_classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, (image // patch) ** 2 + 1, width))
        blocks = (Block(width, num_heads, causal=False, eps=1e-6) for _ in range(num_layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, num_classes)
        self._initialize()

    def _initialize(self) -> None:
        nn.init.normal_(self.positions, std=INIT_STD)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.normal_(module.weight, std=INIT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images (N, 3, `image`, `image`) to logits (N, `num_classes`)."""
        x = apply(self.patches, images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return apply(self.head, apply(self.norm, apply(self.blocks, x))[:, 0])


def vit_b_16() -> nn.Module:
    """ViT-B/16: 12 layers, 768 wide, 12 heads, patches of 16 by 16; 86.6 million parameters."""
    return VisionTransformer(image=224, patch=16, width=768, num_heads=12, num_layers=12, num_classes=1000)
