"""Pre-norm transformer blocks, of GPT-2 and ViT alike."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from hocket.models.layers import apply

INIT_STD = 0.02
"""Of the normal distribution that weights begin with."""


class SelfAttention(nn.Module):
    """Multi-head self-attention, of each place to those before it alone where it is causal."""

    def __init__(self, width: int, num_heads: int, *, causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.causal = causal
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, T, width) to the same."""
        heads = apply(self.query_key_value, x).view(*x.shape[:2], 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()  # each (N, heads, T, width / heads)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return apply(self.projection, mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """Attention, then a two-layer perceptron; each sees its input normalized and is added to it.

    Causal as in GPT-2, with its GELU by tanh; otherwise as in ViT.
    """

    def __init__(self, width: int, num_heads: int, *, causal: bool, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width, eps)
        self.attention = SelfAttention(width, num_heads, causal=causal)
        self.norm_2 = nn.LayerNorm(width, eps)
        self.expand = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU(approximate="tanh" if causal else "none")
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, T, width) to the same."""
        x = x + apply(self.attention, apply(self.norm_1, x))
        expanded = apply(self.gelu, apply(self.expand, apply(self.norm_2, x)))
        return x + apply(self.contract, expanded)
