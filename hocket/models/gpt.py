"""GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from hocket.models.layers import apply
from hocket.models.transformer import INIT_STD, Block


class GPT2(nn.Module):
    """Pre-norm decoder.

    The output layer shares the token embedding's weight, which therefore appears once among the parameters.
    No dropout, as in the published code.
    """

    def __init__(self, *, vocabulary: int, context: int, width: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads, causal=True) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self._initialize(num_layers)

    def _initialize(self, num_layers: int) -> None:
        """Normal weights, smaller where they add to the residual stream, so that depth does not swell it."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                into_residual = name.endswith(("projection", "contract"))
                num_summed = 2 * num_layers if into_residual else 1
                nn.init.normal_(module.weight, std=INIT_STD / math.sqrt(num_summed))
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens (N, T) int64, T at most `context`, to logits (N, T, vocabulary)."""
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        x = apply(self.token_embedding, tokens) + apply(self.position_embedding, positions)
        x = apply(self.norm, apply(self.blocks, x))
        return functional.linear(x, self.token_embedding.weight)


def gpt2_small() -> nn.Module:
    """GPT-2 small: 12 layers, 768 wide, 12 heads, vocabulary 50257, context 1024; 124 million parameters."""
    return GPT2(vocabulary=50_257, context=1024, width=768, num_heads=12, num_layers=12)
