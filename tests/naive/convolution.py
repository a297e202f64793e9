"""Naive twin of convolutions: every pair of numbers that is multiplied, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

Place = tuple[int, ...]


def pairs(
    x_shape: Place, w_shape: Place, *, stride: int, dilation: int, groups: int, transposed: bool
) -> Iterator[tuple[Place, Place, Place]]:
    """Places in output, input and weight: the output is the sum of the products of the last two.

    Shapes are (n, channels, ...) and (outputs, inputs of a group, ...), or (inputs, outputs of a group, ...)
    where it is ``transposed``; there is no padding.
    """
    out_shape = output_shape(x_shape, w_shape, stride=stride, dilation=dilation, transposed=transposed)
    for n, (k, j, *tap) in product(range(x_shape[0]), np.ndindex(*w_shape)):
        group = k // (w_shape[0] // groups)
        other = group * w_shape[1] + j
        if transposed:
            for place in np.ndindex(*x_shape[2:]):
                reached = (stride * p + dilation * t for p, t in zip(place, tap, strict=True))
                yield (n, other, *reached), (n, k, *place), (k, j, *tap)
        else:
            for place in np.ndindex(*out_shape):
                reached = (stride * p + dilation * t for p, t in zip(place, tap, strict=True))
                yield (n, k, *place), (n, other, *reached), (k, j, *tap)


def output_shape(x_shape: Place, w_shape: Place, *, stride: int, dilation: int, transposed: bool) -> Place:
    """The output's extents in space."""
    spans = [dilation * (extent - 1) + 1 for extent in w_shape[2:]]
    if transposed:
        return tuple(stride * (e - 1) + span for e, span in zip(x_shape[2:], spans, strict=True))
    return tuple((e - span) // stride + 1 for e, span in zip(x_shape[2:], spans, strict=True))
