"""Signs of life: who gives none for too long is known, and nobody else is."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from hocket.launch import heartbeats
from hocket.launch.heartbeats import LEAST_S, Signer, WorkerHeartbeats


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(heartbeats, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=None))
    return now


def test_a_worker_is_silent_once_its_last_sign_is_too_old(clock: SimpleNamespace) -> None:
    kept = WorkerHeartbeats(2, 10.0)
    told, fd = kept.begin(0)
    kept.begin(1)
    signer = Signer(fd, 0, 10.0)
    for _ in range(3):
        clock.s += 9.0
        signer.turn()
    assert kept.silence_s(0) == 0.0
    assert kept.silence_s(1) == 27.0
    kept.begin(1)  # started again
    assert kept.silence_s(1) == 0.0
    assert told["HOCKET_SIGNS"].split() == [str(fd), "0", "10.0"]
    kept.close()


def test_a_pass_that_goes_on_and_one_that_is_stuck(clock: SimpleNamespace) -> None:
    kept = WorkerHeartbeats(1, 10.0)
    _, fd = kept.begin(0)
    signer = Signer(fd, 0, 10.0)
    for gradients in range(20):
        signer.progress = lambda gradients=gradients: (1, gradients)
        clock.s += 9.0
        signer.turn()
        assert kept.silence_s(0) == 0.0
    for _ in range(3):
        clock.s += 9.0
        signer.turn()
    assert kept.silence_s(0) == 18.0
    kept.close()


def test_between_passes_time_is_the_scripts(clock: SimpleNamespace) -> None:
    kept = WorkerHeartbeats(1, 10.0)
    _, fd = kept.begin(0)
    signer = Signer(fd, 0, 10.0)
    for _ in range(100):
        clock.s += 9.0
        signer.turn()
    assert kept.silence_s(0) == 0.0
    kept.close()


def test_a_short_timeout_leaves_a_busy_machine_time(clock: SimpleNamespace) -> None:
    kept = WorkerHeartbeats(1, 0.1)
    kept.begin(0)
    clock.s += LEAST_S
    assert kept.silence_s(0) == 0.0
    clock.s += 1.0
    assert kept.silence_s(0) == LEAST_S + 1.0
    kept.close()


def test_signs_are_given_by_the_process_that_was_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = WorkerHeartbeats(1, 10.0)
    told, _ = kept.begin(0)
    begun: list[Signer] = []
    monkeypatch.setattr(Signer, "start", lambda self: begun.append(self))
    monkeypatch.setattr(heartbeats, "signer", None)
    monkeypatch.setenv("HOCKET_SIGNS", told["HOCKET_SIGNS"])
    heartbeats.give_signs()
    assert begun == [heartbeats.signer]
    assert "HOCKET_SIGNS" not in os.environ  # for what it starts
    heartbeats.give_signs()
    assert len(begun) == 1
    kept.close()
