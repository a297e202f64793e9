"""Time that other virtual machines had, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hocket.bench import host_noise


def test_it_is_the_mean_over_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 40 50 60 70 800 90 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
    monkeypatch.setattr(host_noise, "_STAT", stat)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert host_noise.stolen_s() == pytest.approx(800 / os.sysconf("SC_CLK_TCK") / 4)


def test_who_does_not_count_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_noise, "_STAT", tmp_path / "none")
    assert host_noise.stolen_s() == 0.0


@pytest.mark.parametrize(
    ("shares", "kept"),
    [
        ([0.02], 0.02),
        ([0.3, 0.01], 0.01),
        ([0.3, 0.2, 0.5], 0.2),
    ],
)
def test_what_was_disturbed_is_timed_again_and_the_least_disturbed_kept(
    shares: list[float], kept: float
) -> None:
    left = iter(shares)
    assert host_noise.least_stolen(lambda: next(left), lambda share: share, 0.02) == kept
    assert not list(left)


@pytest.mark.parametrize(
    ("cpu_s", "found"),
    [
        ([1.0, 1.04, 1.06, 1.5], [2, 3]),
        ([0.01, 0.02, 0.04, 0.05], []),  # who waits for most of it, as an all-reduce does
    ],
)
def test_work_that_took_more_processor_time_than_before_was_slowed(
    cpu_s: list[float], found: list[int]
) -> None:
    assert host_noise.slowed(cpu_s, [1.0] * len(cpu_s), 0.05) == found
