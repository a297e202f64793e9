"""Fingerprints that tell whether a tensor was written to: cheap enough for every parameter in every step."""

from __future__ import annotations

import ctypes

import torch

_SAMPLE_BYTES = 4096


class Fingerprint:
    """Of ``tensor``, which is on the processor, as it is now.

    Torch counts what is written to a tensor, but for what is written by way of its ``data``. So a sample of
    its bytes counts too, from another place with each ``turn``: what has changed everywhere shows at once,
    what has changed at one place when that has its turn, which is always where a tensor is no larger than
    the sample.
    """

    __slots__ = ("_address", "_offset", "_sample", "_version")

    def __init__(self, tensor: torch.Tensor, turn: int) -> None:
        self._version = _version(tensor)
        self._address = tensor.data_ptr()
        span = _span_bytes(tensor)
        self._offset = turn % max(1, -(-span // _SAMPLE_BYTES)) * _SAMPLE_BYTES
        self._sample = self._read(min(_SAMPLE_BYTES, span - self._offset))

    def matches(self, tensor: torch.Tensor) -> bool:
        """True if ``tensor`` still is as it was, so far as can be seen."""
        # Memory that is read is the tensor's own only as long as that is where it was.
        return (
            _version(tensor) == self._version
            and tensor.data_ptr() == self._address
            and self._read(len(self._sample)) == self._sample
        )

    def _read(self, length: int) -> bytes:
        # A third of what a comparison by torch takes, whatever type and strides.
        return ctypes.string_at(self._address + self._offset, length)


def _version(tensor: torch.Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:  # those of inference mode have none
        return 0


def _span_bytes(tensor: torch.Tensor) -> int:
    """From its first element in memory to behind its last one."""
    if tensor.is_contiguous():
        return tensor.nbytes
    places = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((extent - 1) * stride for extent, stride in places)) * tensor.itemsize
