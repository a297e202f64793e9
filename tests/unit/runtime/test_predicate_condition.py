"""A change wakes those who have something to do, and nobody else."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from hocket.runtime.transfers.predicate_condition import PredicateCondition

LIMIT_S = 20.0


def wait_until_waiting(bell: PredicateCondition, number: int) -> None:
    end_s = time.monotonic() + LIMIT_S
    while len(bell._waiting) < number:
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_only_those_are_woken_whose_turn_it_is() -> None:
    bell, turn, looks = PredicateCondition(), [-1], [0, 0, 0]
    threads = [threading.Thread(target=lambda k=k: wait(k), name=str(k)) for k in range(3)]

    def wait(k: int) -> None:
        def due() -> bool:
            looks[k] += threading.current_thread().name == str(k)
            return turn[0] == k

        with bell:
            assert bell.wait_for(due, LIMIT_S)

    for thread in threads:
        thread.start()
    wait_until_waiting(bell, 3)
    for k in (2, 0):
        with bell:
            turn[0] = k
            bell.notify()
        threads[k].join(LIMIT_S)
        assert not threads[k].is_alive()
    assert looks == [2, 1, 2]  # before they wait, and once more when they are woken
    with bell:
        turn[0] = 1
        bell.notify()
    threads[1].join(LIMIT_S)
    assert bell._waiting == []


def test_nobody_waits_for_what_is_there_or_longer_than_they_said() -> None:
    bell = PredicateCondition()
    with bell:
        assert bell.wait_for(lambda: True)
        began_s = time.monotonic()
        assert not bell.wait_for(lambda: False, 0.05)
        assert 0.04 < time.monotonic() - began_s < LIMIT_S / 2
    assert bell._waiting == []


def test_what_one_takes_another_one_does_not_get() -> None:
    bell, things, got = PredicateCondition(), [0], [0] * 4

    def take(k: int) -> None:
        while True:
            with bell:
                bell.wait_for(lambda: things[0] != 0)
                if things[0] < 0:
                    return
                things[0] -= 1
                got[k] += 1
                bell.notify()

    threads = [threading.Thread(target=take, args=[k]) for k in range(len(got))]
    for thread in threads:
        thread.start()
    for _ in range(500):
        with bell:
            things[0] += 1
            bell.notify()
    with bell:
        assert bell.wait_for(lambda: things[0] == 0, LIMIT_S)
        things[0] = -1
        bell.notify()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert sum(got) == 500


def test_a_wait_that_is_interrupted_is_none_any_more_and_a_handler_may_wait_itself() -> None:
    bell, waited = PredicateCondition(), []

    class Interrupt(BaseException):
        pass

    def interrupt(*_: object) -> None:
        with bell:  # in the middle of the wait below, or of what surrounds it
            waited.append(bell.wait_for(lambda: True))
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with bell, pytest.raises(Interrupt):
            bell.wait_for(lambda: False, LIMIT_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (waited, bell._waiting) == ([True], [])
    with bell:
        bell.notify()
