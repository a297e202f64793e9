"""Training on a device that works later than it is asked to, beside DistributedDataParallel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.delayed.mutations import MUTATIONS, mutated
from tests.multiprocess.launch import ROOT, NotOverError, run

CASES = "tests.multiprocess.delayed_cases"


@pytest.mark.parametrize("plan", ["listed", "halves", pytest.param("ready", marks=pytest.mark.slow)])
def test_a_step_whose_plan_stays_waits_for_nothing(plan: str) -> None:
    assert run(f"{CASES}:settled_steps", delayed=[0], plan=plan) == [[], []]


@pytest.mark.parametrize("plan", ["listed", "halves"])
def test_a_thread_that_transfers_waits_for_gradients_and_for_each_arrival_once(plan: str) -> None:
    for waits, buckets, transfers in run(f"{CASES}:waits_of_transfers", delayed=[0], sums_up=True, plan=plan):
        assert waits == 3 * (buckets + transfers)


def test_no_read_of_a_value_by_the_host_goes_unnoticed() -> None:
    assert run(f"{CASES}:reads_that_are_noticed", world=1, delayed=[0]) == [[]]


def test_the_network_is_measured_by_devices_of_which_one_sums_up_when_it_is_waited_for() -> None:
    here, there = run(f"{CASES}:measured_network", delayed=[0], sums_up=True, timeout_s=120)
    assert here == there > 0


@pytest.mark.slow
def test_buffers_are_those_of_ddp_though_nobody_looks_at_their_values() -> None:
    assert run(f"{CASES}:buffers", delayed=[0, 3], timeout_s=280) == [[], []]


@pytest.mark.slow
def test_a_write_to_a_buffer_that_torch_does_not_count_is_late_in_one_pass_and_told() -> None:
    (found, told), (found_there, told_there) = run(f"{CASES}:written_unseen_later", delayed=[1])
    assert (found, told_there) == ([], [])
    assert found_there == ["pass[8][1].written"]
    assert told == ["a buffer was changed between passes by a write that torch does not count (.data"]


def test_what_is_recorded_takes_what_the_device_needs_for_it_and_nobody_waits() -> None:
    (found,) = run(f"{CASES}:recorded", world=1, delayed=[0], item_s=0.02)
    assert found == {
        "waited": [],
        "transfers": 4,
        "the last transfer": 60.0,
        "forward layer": 40.0,
        "backward bias": 20.0,
        "unused": 0.0,
        "update weight": 60.0,
        "update bias": 20.0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("sums_up", [pytest.param(False, marks=pytest.mark.long), True])
def test_profiles_and_trials_are_in_the_time_of_the_device(sums_up: bool) -> None:
    for found in run(f"{CASES}:timed", delayed=[2], sums_up=sums_up, item_s=0.003):
        assert found["settled"]
        assert found["clock"] == "whose clock: the delayed device's own"
        assert found["whole"] == pytest.approx(1.0, abs=0.03)  # the parts of steps are all of them
        assert 1.0 <= found["transfers"] <= 1.2  # each is recorded once; one may run over a step's bounds
        assert found["step"] >= 1.0  # of what the device has to do; the host asks for it in a tenth of that
        assert found["profile"] >= 0.9
        assert found["turns"] >= 0.95


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sums_up", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_parameters_are_bitwise_those_of_ddp_in_any_order_of_work(seed: int, sums_up: bool) -> None:
    assert run(f"{CASES}:short", timeout_s=480, delayed=[seed], sums_up=sums_up) == [[], []]


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_what_a_user_of_ddp_has_is_bitwise_the_same_in_ten_orders_of_work() -> None:
    for seed in range(10):
        found = run(f"{CASES}:suite", timeout_s=480, delayed=[seed], sums_up=seed % 2 == 1)
        assert not any(of_case for rank in found for of_case in rank.values()), (seed, found)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_each_wait_that_is_left_out_shows() -> None:
    assert [name for name in MUTATIONS if not _shows(name)] == []


def _shows(mutation: str) -> bool:
    """Tell whether parameters differ, or ranks fail, where that is left out."""
    options: dict[str, Any] = {"mutation": mutation, "sums_up": MUTATIONS[mutation].sums_up}
    try:
        return run(f"{CASES}:short", timeout_s=480, delayed=[0, 1, 2, 3], **options) != [[], []]
    except NotOverError:  # a machine that is busy makes ranks late, too: that shows nothing
        return False
    except AssertionError:
        return True


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wait_to_leave_out_is_in_one_place(name: str) -> None:
    mutation = MUTATIONS[name]
    source = Path(ROOT, *mutation.module.split(".")).with_suffix(".py").read_text()
    text = mutated(source, mutation)
    compile(text, mutation.module, "exec")
    # A name that the module does not know raises, which a run would take for a wait that shows.
    check = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-"]
    assert subprocess.run(check, input=text, text=True, capture_output=True, timeout=60).returncode == 0
