"""A setting that takes seconds, and every paper made with it once a session."""

from __future__ import annotations

from hocket.reproduce.setting import ReproductionSetting

TINY = ReproductionSetting(
    quick=True,
    steps=3,
    noisy_steps=20,
    profiled_steps=1,
    predicted_steps=20,
    skipped_steps=5,
    job_sets=2,
    network_repeats=1,
)
