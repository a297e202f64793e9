"""The zoo's steps on devices that are not here, derived without running anything."""

from __future__ import annotations

from functools import lru_cache

from hocket import models
from hocket.graph import StepGraph
from hocket.profiler import Target, derive, fake, make_step

TABLE_1 = (
    *("alexnet_v2", "inception_v1", "inception_v2", "inception_v3", "resnet50_v1"),
    *("resnet101_v1", "resnet50_v2", "resnet101_v2", "vgg16", "vgg19"),
)
"""The models of TicTac's Table 1, in its order."""

NAMES = {
    "alexnet_v2": "AlexNet v2",
    "inception_v1": "Inception v1",
    "inception_v2": "Inception v2",
    "inception_v3": "Inception v3",
    "resnet50_v1": "ResNet-50 v1",
    "resnet101_v1": "ResNet-101 v1",
    "resnet50_v2": "ResNet-50 v2",
    "resnet101_v2": "ResNet-101 v2",
    "resnet152_v2": "ResNet-152 v2",
    "vgg11": "VGG-11",
    "vgg16": "VGG-16",
    "vgg19": "VGG-19",
    "vgg19_22k": "VGG19-22K",
    "googlenet": "GoogLeNet",
    "lstm_ptb": "LSTM-PTB",
}
"""The models' names in papers."""


@lru_cache(maxsize=8)
def derived(
    model: str,
    batch_size: int | None = None,
    *,
    device: str = "k80",
    inference: bool = False,
    samples: int = 1,
    jitter: float = 0.0,
    seed: int = 0,
) -> StepGraph:
    """One step by roofline; the batch is the model's default, TicTac's Table 1 where that lists it."""
    with fake():
        setup = models.make(model, batch_size, training=not inference)
        return derive(
            make_step(*setup, inference=inference),
            device=Target(device, as_papers=True),
            name=model,
            samples=samples,
            jitter=jitter,
            seed=seed,
        )
