"""Convolutions in groups: which of them kernels take together, and what those that they do not take cost."""

from __future__ import annotations

import pytest

from hocket.datasheets import DEVICES
from hocket.profiler._call import Call, SeenTensor
from hocket.profiler._work import Work, works_of_call
from hocket.profiler.gpu_model import FITTED, Kernels, kernel_seconds


def convolution(channels_in: int, channels_out: int, groups: int) -> Work:
    """The work of a convolution of 3 by 3 in channels last."""

    def images(channels: int) -> SeenTensor:
        return SeenTensor((64, channels, 28, 28), "float16", (784 * channels, 1, 28 * channels, channels))

    weight = SeenTensor((channels_out, channels_in // groups, 3, 3), "float16", (1, 1, 1, 1))
    none = ((1, 1), (1, 1), (1, 1))
    args = (images(channels_in), weight, None, *none, False, (0, 0), groups)
    (work,) = works_of_call(Call("convolution", args, (images(channels_out),), 0.0, 0.0))
    return work


@pytest.mark.parametrize(
    ("shape", "together"),
    [
        ((512, 512, 32), True),  # ResNeXt: 16 channels into each group, and 16 out
        ((128, 128, 32), True),
        ((512, 1024, 64), False),  # SENet-154: 8 in, 16 out
        ((384, 384, 32), False),  # 12 of them
        ((128, 128, 8), False),  # few groups
    ],
)
def test_groups_are_taken_together_where_they_are_many_and_alike(
    shape: tuple[int, int, int], together: bool
) -> None:
    work = convolution(*shape)
    (seconds,) = kernel_seconds(Kernels([work]), DEVICES["rtx3090"], "amp", FITTED)
    share = work.flops / seconds / DEVICES["rtx3090"].peaks["float16"]
    assert (share > 0.05) == together


def test_groups_of_their_own_are_quicker_the_wider_they_are() -> None:
    works = [convolution(width * 4, width * 4, 4) for width in (16, 64, 128)]
    seconds = kernel_seconds(Kernels(works), DEVICES["rtx3090"], "amp", FITTED)
    rates = [work.flops / each for work, each in zip(works, seconds, strict=True)]
    assert sorted(rates) == rates
