"""Models that jobs train: those that Wang et al. (2020) measured, and the sizes of others in traces.

Table III gives sizes in MB, and nowhere does the paper say of how many bytes. They are taken for 10^6: what a
size is for is the time b * size, the paper's b is 8.53e-10 seconds a byte, and its authors' program takes
0.856 ms for an MB, which is that times 10^6 (0.853 ms), not times 2^20 (0.894 ms). As sizes they look like
MiB of the models' parameters: 526.4, 103.0 and 251.8 are within 0.6% of those of VGG-16, Inception v3 and the
PTB LSTM; multiply by 1.0486 to get them so.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelProfile(NamedTuple):
    """A model on one GPU: bytes of its gradients and of GPU memory, seconds of an iteration's two passes."""

    name: str
    size_bytes: float
    memory_bytes: float
    forward_s: float
    backward_s: float


# Contention paper, Table III: Tesla V100-16GB, PyTorch 1.2.
TABLE_III = (
    ModelProfile("vgg16", 526_400_000, 4_527_000_000, 0.0358, 0.0537),
    ModelProfile("resnet50", 99_200_000, 3_213_000_000, 0.0250, 0.0374),
    ModelProfile("inception_v3", 103_000_000, 3_291_000_000, 0.0349, 0.0524),
    ModelProfile("lstm_ptb", 251_800_000, 2_751_000_000, 0.0315, 0.0473),
)

# Of forward and backward together, in each row of Table III.
FORWARD_SHARE = 0.4

# Parameters as published with the models; an Inception v3 has its auxiliary head while it trains.
_PARAMETERS = {
    "alexnet": 61_100_840,
    "googlenet": 6_624_904,
    "inception3": 27_161_264,
    "inception4": 42_679_816,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
}
FLOAT_BYTES = 4


def published_sizes() -> dict[str, float]:
    """The bytes of the gradients of models that traces name, in single precision."""
    return {name: float(FLOAT_BYTES * count) for name, count in _PARAMETERS.items()}


def estimated_memory_bytes(size_bytes: float) -> float:
    """Bytes of a GPU's memory that a job of a model of that size needs, where it was not measured.

    Weights, gradients, momentum and a buffer to send from, and 2.5 GB of activations and libraries: within
    0.8 GB of each row of Table III.
    """
    return 4 * size_bytes + 2.5e9
