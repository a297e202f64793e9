"""The step behind the figures: the convolutional network that training is benchmarked with.

OMP_NUM_THREADS=1 hocket profile docs/draw/cnn.py:job --batch-size 96 --steps 5 -o docs/figures/cnn.step.json
"""

from __future__ import annotations

from typing import Any

from hocket.bench.training.timed_models import load


def job(batch_size: int) -> tuple[Any, ...]:
    """Model, batch, loss and optimizer."""
    setup = load("cnn", batch_size, 0)
    return setup.model, setup.batch, setup.loss, setup.optimizer
