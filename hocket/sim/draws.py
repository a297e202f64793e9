"""Random draws of a prediction as a function of the seed: the same whatever else runs."""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel


@kernel
def draw_number(seed, a, b):
    """A well-mixed non-negative integer for (seed, a, b): splitmix64's finalizer over their combination."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    for word in (a, b):
        z = (z ^ np.uint64(word)) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.int64(z >> np.uint64(1))


@kernel
def draw_order(seed, worker, step, order):
    """Fill ``order`` (n,) with a permutation drawn for one worker's step."""
    mixed = draw_number(seed, worker, step)
    for i in range(len(order)):
        order[i] = i
    for i in range(len(order) - 1, 0, -1):
        j = draw_number(mixed, step, i) % (i + 1)
        order[i], order[j] = order[j], order[i]
