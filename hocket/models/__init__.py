"""The papers' networks and a transformer, in plain `torch.nn`; importing this does not import torch."""

from hocket.models.zoo import (
    OTHERS,
    ModelSpec,
    TrainableTensor,
    TrainingSetup,
    build,
    make,
    names,
    parameter_table,
    spec,
)

__all__ = [
    "OTHERS",
    "ModelSpec",
    "TrainableTensor",
    "TrainingSetup",
    "build",
    "make",
    "names",
    "parameter_table",
    "spec",
]
