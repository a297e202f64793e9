"""The measurement of the network between steps, on a link whose times are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from hocket.runtime.transfers import allreduce_cost
from hocket.runtime.transfers.allreduce_cost import ReductionMeasurement
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.transfer_group import TransferGroup


class Link:
    """A link on which one reduction follows another: a + b d each, the first ``burst_bytes`` for nothing."""

    size = 2

    def __init__(self, a_s: float, b_s_per_byte: float, burst_bytes: int = 0) -> None:
        self.a_s, self.b_s_per_byte, self.burst_bytes = a_s, b_s_per_byte, burst_bytes
        self.now_s = self.free_s = 0.0
        self.burst_left = burst_bytes

    def reduce(self, tensor: torch.Tensor) -> SimpleNamespace:
        if self.now_s >= self.free_s:
            self.burst_left = self.burst_bytes
        free = min(self.burst_left, tensor.nbytes)
        self.burst_left -= free
        self.free_s = max(self.free_s, self.now_s) + self.a_s + self.b_s_per_byte * (tensor.nbytes - free)
        ends_s = self.free_s

        def wait() -> None:
            self.now_s = max(self.now_s, ends_s)

        return SimpleNamespace(wait=wait)


def measurement_of(link: Link, monkeypatch: pytest.MonkeyPatch) -> ReductionMeasurement:
    device = SimpleNamespace(
        mark=lambda: link.now_s, record=lambda: None, seconds_between=lambda a, b: b - a, wait=lambda _: None
    )
    monkeypatch.setattr(allreduce_cost, "device_of", lambda _: device)
    monkeypatch.setattr(allreduce_cost, "max_over_ranks", lambda values, _: values)
    control = cast(GlooGroup, cast(Any, SimpleNamespace(barrier=lambda: None)))
    return ReductionMeasurement(cast(TransferGroup, cast(Any, link)), control, torch.zeros(1))


@pytest.mark.parametrize("mbit", [50, 250, 1_000, 10_000])
def test_a_link_is_measured_as_it_is(mbit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by sizes of which one alone takes as long as a row may."""
    link = Link(3e-4, 8e-6 / mbit, burst_bytes=60_000)
    pieces = measurement_of(link, monkeypatch).pieces()
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            network, point = end.value
            break
    assert network.reduction is not None
    assert network.reduction.a_s == pytest.approx(link.a_s, rel=0.05)
    assert network.reduction.b_s_per_byte == pytest.approx(link.b_s_per_byte, rel=0.01)
    again_s = measurement_of(link, monkeypatch).again(point)
    assert again_s == pytest.approx(point.seconds, rel=0.01)
    assert point.seconds == pytest.approx(link.a_s + link.b_s_per_byte * point.size_bytes, rel=0.01)
