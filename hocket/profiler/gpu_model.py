"""A GPU's seconds for a step's kernels, from its datasheet and few constants that hold for all GPUs.

A kernel takes its computing, its memory's traffic and, on tensor cores, that of the cache in front of it,
mostly side by side: the fourth root of the sum of their fourth powers. Products are laid out in tiles over
multiprocessors in waves; the last wave is as long as a full one. :data:`FITTED` comes from ``python -m
scripts.fit_devices``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hocket.datasheets import Device, Number, Precision
from hocket.profiler._work import HALVES, KINDS, WIDTHS, Work

_Vector = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]

_CONVOLUTIONS = ("forward", "input_gradient", "weight_gradient")
_ATTENTION = ("attention", "attention_backward", "masked_attention", "masked_attention_backward")
_DENSE = ("product", *_CONVOLUTIONS, *_ATTENTION, "recurrent")
_OF_MEMORY = ("stream", "strided", "norm", "rows", "reduction", "layout", "gather", "update")
# Extents of a tile, and its speed relative to the best tile's.
_TILES = (
    (256, 128, 1.0),
    (128, 128, 0.95),
    (128, 64, 0.85),
    (64, 64, 0.7),
    (64, 32, 0.5),
    (32, 32, 0.3),
    (128, 8, 0.3),
)
_SPLITS = (1, 2, 4, 8, 16, 32, 64, 256)
_SHORTEST_SUM = 256
_TILE_DEPTH = 32
# Kernels on tensor cores take many groups together where as many channels go into a group as come out, of
# these numbers; of fewer groups, and of others, each group is a product of its own, padded to a tile.
_PACKED_CHANNELS, _PACKED_GROUPS = (4, 8, 16, 32), 32
_GROUP_TILE = 64
_POWER = 4.0


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Shares of a datasheet's peaks that kernels reach, and costs beside them."""

    stream: float
    """Shares of the memory's bandwidth, by kind of kernel."""
    strided: float
    norm: float
    rows: float
    reduction: float
    layout: float
    matrix_memory: float
    depthwise_memory: float
    product: float
    """Shares of the peak of the numbers multiplied on tensor cores: by products, and by convolutions."""
    convolution: float
    grouped: float
    """Of groups that kernels take together, of 16 channels each; how it grows with channels."""
    group_width: float
    unpacked: float
    """Of other groups, of 64 channels each, up from where it grows as channels do; how below."""
    narrow: float
    depthwise: float
    """Of float32's peak: depthwise convolutions, and those whose window has more than 49 places."""
    large_window: float
    unaligned: float
    """The speed of channels that 8 does not divide, relative to others."""
    vector: float
    """Share of float32's peak without tensor cores, and the speed-up there of windows of 3 by 3."""
    winograd: float
    depth_overhead: float
    """Multiplications in a row that a tile's beginning and end cost."""
    cache: float
    """The shared cache's bandwidth, in that of memory."""
    numbers_per_s: float
    """Numbers that a multiprocessor passes over in a second, whatever their width."""
    kernel_s: float
    """A kernel's beginning and end."""
    host_s: float
    """The program's time for a call of an operator."""
    gather: float = 0.4
    """Assumed, as is what follows: too little of them is in the figures that others are fitted to."""
    update: float = 0.8
    attention: float = 0.5
    attention_backward: float = 0.4
    masked_attention: float = 0.3
    masked_attention_backward: float = 0.2
    wide_attention: float = 0.5
    """The speed of attention to float32, relative to half precision's share."""
    recurrent: float = 0.5


class Kernels:
    """Works as columns, for one card's number of multiprocessors after another."""

    def __init__(self, works: Sequence[Work]) -> None:
        names = {kind: index for index, kind in enumerate(KINDS)}
        self.kind = np.array([names[work.kind] for work in works], dtype=np.int64)
        self.num_bytes = np.array([work.num_bytes for work in works], dtype=float)
        self.width = np.array([WIDTHS.get(work.dtype, 4) for work in works], dtype=float)
        self.dtype = np.array([work.dtype for work in works], dtype=str)
        shape = np.array([(w.m, w.n, w.k, w.batch) for w in works], dtype=float).reshape(-1, 4)
        self.m, self.n, self.k, self.batch = shape.T
        self.launches = np.array([work.kernels for work in works], dtype=float)
        self.taps = np.array([work.taps for work in works], dtype=float)
        self.channels = np.array([work.channels for work in works], dtype=float)
        self.alike = np.array([work.alike for work in works], dtype=bool)
        self.flops = 2.0 * shape.prod(axis=1)
        self._tiled: dict[int, tuple[_Vector, _Vector, _Vector]] = {}

    def of(self, *kinds: str) -> _Mask:
        """The rows of these kinds."""
        return np.isin(self.kind, [KINDS.index(kind) for kind in kinds])

    def tiled(self, multiprocessors: int) -> tuple[_Vector, _Vector, _Vector]:
        """Of each way to lay out dense products (rows) and each product: operations, loads, and depth."""
        if multiprocessors not in self._tiled:
            dense = self.of(*_DENSE)
            m, n, k, batch = (column[dense] for column in (self.m, self.n, self.k, self.batch))
            may_split = self.of("product", "weight_gradient")[dense]
            ways: list[tuple[Any, Any, Any]] = []
            for long, short, speed in _TILES:
                for rows, columns in dict.fromkeys(((long, short), (short, long))):
                    tiles = np.ceil(m / rows) * np.ceil(n / columns) * batch
                    for split in _SPLITS:
                        waves = np.ceil(tiles * split / multiprocessors)
                        fits = (split == 1) | (may_split & (k / split >= _SHORTEST_SUM))
                        operations = waves * multiprocessors * 2.0 * rows * columns / speed
                        depth = np.ceil(k / split / _TILE_DEPTH) * _TILE_DEPTH
                        ways.append(
                            (np.where(fits, operations, np.inf), tiles * split * (rows + columns), depth)
                        )
            operations, loads, depths = (np.array(each) for each in zip(*ways, strict=True))
            self._tiled[multiprocessors] = operations, loads, depths
        return self._tiled[multiprocessors]


def kernel_seconds(kernels: Kernels, device: Device, precision: Precision, constants: Constants) -> _Vector:
    """Seconds of each work on ``device``; float32's products are TF32's where ``precision`` is tf32."""
    peak, on_cores = _peaks(kernels, device, precision)
    computing = _computing(kernels, device, peak, on_cores, constants)
    moving = kernels.num_bytes / (device.bandwidth_bps * _shares(kernels, constants))
    passing = kernels.num_bytes / kernels.width / (device.multiprocessors * constants.numbers_per_s)
    moving = np.where(kernels.m > 0, moving, np.maximum(moving, passing))
    caching = np.zeros(len(peak))
    _, loads = _best_layout(kernels, device, constants)
    dense = kernels.of(*_DENSE)
    caching[dense] = loads * kernels.width[dense] / (device.bandwidth_bps * constants.cache)
    caching[~on_cores] = 0.0
    moving[kernels.of("layout") & ~on_cores] = 0.0
    together = (computing**_POWER + moving**_POWER + caching**_POWER) ** (1 / _POWER)
    return np.asarray(together + kernels.launches * constants.kernel_s)


def _peaks(kernels: Kernels, device: Device, precision: Precision) -> tuple[_Vector, _Mask]:
    """The peak for the numbers of each work, and whether tensor cores multiply them."""
    single = device.peaks["float32"]
    wide = device.peaks["tf32"] if precision == "tf32" else single
    peak, on_cores = np.full(len(kernels.dtype), wide), np.full(len(kernels.dtype), precision == "tf32")
    dtype: Number
    for dtype in HALVES:
        rows = kernels.dtype == dtype
        peak[rows] = device.peaks.get(dtype, single)
        # Half precision without tensor cores is twice as fast, as on a P100.
        on_cores[rows] = dtype in device.peaks and ("bfloat16" in device.peaks or peak[rows] > 2 * single)
    return peak, on_cores


def _best_layout(kernels: Kernels, device: Device, constants: Constants) -> tuple[_Vector, _Vector]:
    """Operations and loads of dense products, tiles' padding included, in the quickest layout."""
    operations, loads, depths = kernels.tiled(device.multiprocessors)
    whole = operations * (depths + constants.depth_overhead)
    best = np.argmin(whole, axis=0)[None]
    picked = (np.take_along_axis(each, best, axis=0)[0] for each in (whole, loads * depths))
    taken = tuple(picked)
    return taken[0], taken[1]


def _computing(
    kernels: Kernels, device: Device, peak: _Vector, on_cores: _Mask, constants: Constants
) -> _Vector:
    seconds = np.zeros(len(peak))
    dense = kernels.of(*_DENSE)
    share = np.full(len(peak), constants.convolution)
    for name in ("product", *_ATTENTION, "recurrent"):
        share[kernels.of(name)] = getattr(constants, name)
    share[kernels.of(*_ATTENTION) & (kernels.width > 2)] *= constants.wide_attention
    share[kernels.channels < 8] *= constants.unaligned
    operations, _ = _best_layout(kernels, device, constants)
    vector = np.where(
        kernels.of(*_CONVOLUTIONS) & (kernels.taps == 9),
        constants.vector * constants.winograd,
        constants.vector,
    )
    seconds[dense] = np.where(
        on_cores[dense],
        operations / (peak[dense] * share[dense]),
        kernels.flops[dense] / (peak[dense] * vector[dense]),
    )
    grouped = kernels.of(*(f"grouped_{name}" for name in _CONVOLUTIONS))
    of_weights = kernels.of("grouped_weight_gradient")
    fan = np.where(of_weights, kernels.m, kernels.n)[grouped]
    together = kernels.alike[grouped] & (kernels.batch[grouped] >= _PACKED_GROUPS)
    together &= np.isin(fan, _PACKED_CHANNELS)
    wide = fan / _GROUP_TILE
    reached = np.where(
        together,
        constants.grouped * (fan / 16) ** constants.group_width,
        constants.unpacked * np.where(wide < 1, wide**constants.narrow, wide),
    )
    seconds[grouped] = kernels.flops[grouped] / (peak[grouped] * np.minimum(reached, 1.0))
    depthwise = kernels.of(*(f"depthwise_{name}" for name in _CONVOLUTIONS))
    rate = np.where(np.abs(kernels.taps) > 49, constants.large_window, constants.depthwise)
    seconds[depthwise] = kernels.flops[depthwise] / (device.peaks["float32"] * rate[depthwise])
    return seconds


def _shares(kernels: Kernels, constants: Constants) -> _Vector:
    """The share of memory's bandwidth that each row reaches."""
    own = {kind: getattr(constants, kind) for kind in _OF_MEMORY} | {"thin": constants.rows}
    by_kind = [
        constants.depthwise_memory if kind.startswith("depthwise") else own.get(kind, constants.matrix_memory)
        for kind in KINDS
    ]
    return np.array(by_kind)[kernels.kind]


# The result of `python -m scripts.fit_devices fit`; a test holds what it gives to published figures.
FITTED = Constants(
    stream=0.9502,
    strided=0.6196,
    norm=0.996,
    rows=0.704,
    reduction=0.5135,
    layout=0.9998,
    matrix_memory=0.5095,
    depthwise_memory=0.2441,
    product=1.093,
    convolution=1.023,
    grouped=0.1698,
    group_width=0.2111,
    unpacked=0.03268,
    narrow=0.1942,
    depthwise=0.1866,
    large_window=0.012,
    unaligned=0.5486,
    vector=0.6992,
    winograd=1.9,
    depth_overhead=50.85,
    cache=1.399,
    numbers_per_s=8.261e09,
    kernel_s=3.104e-06,
    host_s=8e-06,
)
