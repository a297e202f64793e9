"""The word-level language model of Zaremba et al., "Recurrent neural network regularization" (2014)."""

from __future__ import annotations

from torch import Tensor, nn

from hocket.models.layers import apply

_INIT_RANGE = 0.04  # the paper's uniform initialization of the large model
_DROPOUT = 0.65


class LanguageLSTM(nn.Module):
    """Embedding, LSTM layers, softmax layer.

    Dropout acts on the non-recurrent connections only, the paper's point. Each sequence starts from a zero
    state, so that one step is one self-contained graph; the paper carries the state from batch to batch.
    `nn.LSTM` keeps two bias vectors per layer where the paper has one.
    """

    def __init__(self, vocabulary: int, width: int, num_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.lstm = nn.LSTM(width, width, num_layers, batch_first=True, dropout=_DROPOUT)
        self.logits = nn.Linear(width, vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_INIT_RANGE, _INIT_RANGE)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens (N, T) int64 to logits (N, T, vocabulary)."""
        embedded = apply(self.dropout, apply(self.embedding, tokens))
        hidden, _ = self.lstm(embedded)
        return apply(self.logits, apply(self.dropout, hidden))


def lstm_ptb() -> nn.Module:
    """The paper's large Penn Treebank model: 10,000 words, 2 layers of 1500 units, 66 million parameters."""
    return LanguageLSTM(vocabulary=10_000, width=1500, num_layers=2)
