"""The profile of a step, beside which the network is measured."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.network import Network
from hocket.network.file import MeasuredPoint
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training import step_profile
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.training.step_profile import profiled
from hocket.runtime.transfers.gloo_group import GlooGroup
from tests.unit.runtime.test_plan_trials import plan_of

COMPUTE_S, TRANSFER_S, MEASURE_S = 1.0, 2.0, 10.0


@pytest.mark.parametrize("measured", [False, True])
def test_a_step_takes_its_transfers_whether_the_network_is_measured_behind_it(
    measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step leaves transfers that the next one waits for, or whatever else waits for them first."""
    clock = SimpleNamespace(now_s=0.0, ends_s=TRANSFER_S)

    def finish_transfers() -> None:
        clock.now_s = max(clock.now_s, clock.ends_s)

    def pieces() -> Generator[None, None, tuple[Network, MeasuredPoint]]:
        for _ in range(5):
            clock.now_s += MEASURE_S
            yield
        return Network(num_workers=2), MeasuredPoint(size_bytes=1, seconds=1.0)

    recorder = SpanRecorder({})
    monkeypatch.setattr(recorder, "now", lambda: clock.now_s)
    monkeypatch.setattr(recorder, "graph", lambda *_: None)
    monkeypatch.setattr(step_profile, "max_over_ranks", lambda values, _: values)
    monkeypatch.setattr(step_profile, "agree_on_norms", lambda *_: False)
    training = SimpleNamespace(
        recorder=recorder, compiled_step=None, finish_transfers=finish_transfers, model=None
    )
    choice = Choice(plan=plan_of("ddp"))
    run = profiled(
        cast(AllReduceTraining, training),
        choice,
        cast(GlooGroup, cast(Any, None)),
        pieces() if measured else None,
    )
    while True:
        try:
            next(run)
        except StopIteration as end:
            seconds = end.value
            break
        finish_transfers()
        clock.now_s += COMPUTE_S
        clock.ends_s = clock.now_s + TRANSFER_S
    assert seconds == pytest.approx([COMPUTE_S + TRANSFER_S] * 4)
