"""The zoo's steps on a K80, derived without running anything: what the papers' figures are about."""

from __future__ import annotations

from functools import cache

from hocket import models
from hocket.graph import StepGraph
from hocket.profiler import derive, fake

TABLE_1 = (
    *("alexnet_v2", "inception_v1", "inception_v2", "inception_v3", "resnet50_v1"),
    *("resnet101_v1", "resnet50_v2", "resnet101_v2", "vgg16", "vgg19"),
)


@cache
def k80(model: str, batch_size: int | None = None, samples: int = 1, jitter: float = 0.0) -> StepGraph:
    """One training step; TicTac's Table 1 has the batch sizes that are taken by default."""
    with fake():
        return derive(
            *models.make(model, batch_size), device="k80", name=model, samples=samples, jitter=jitter
        )
