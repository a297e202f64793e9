"""A profiled step as plain rows, and the small models that the tests profile."""

import torch
from torch import nn

from hocket.graph.step import PHASE_NAMES
from hocket.profiler import profile


def rows_of(graph):
    """name: (inputs, reads, produces), each a list of names."""
    operations, parameters = graph.operation_names, graph.parameter_names
    return {
        name: (
            [operations[j] for j in graph.inputs.row(i)],
            [parameters[j] for j in graph.reads.row(i)],
            [parameters[j] for j in graph.produces.row(i)],
        )
        for i, name in enumerate(operations)
    }


def profiled(model, batch, optimizer=None, loss=None, **options):
    """The rows of a quickly profiled step, its loss a plain sum unless given."""
    return rows_of(profile(model, batch, loss or total, optimizer, steps=1, warmup=1, **options))


def total(outputs, _targets):
    return outputs.sum()


def phases_of(graph):
    return [PHASE_NAMES[phase] for phase in graph.phases]


def perceptron():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def classified(batch_size=2, features=4, classes=3):
    return torch.randn(batch_size, features), torch.randint(classes, (batch_size,))
