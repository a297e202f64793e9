"""The gain that explain() tells of: what there was, what was won, and the line that has the rest."""

from __future__ import annotations

import pytest

from hocket.network import Network
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.training.explain import explanation
from hocket.runtime.training.gain import gain_line
from hocket.runtime.training.plan_trials import Choice
from tests.unit.runtime.test_explain import NETWORK, PIECES, WHOLE, Worker

READ = "gradients were read before the optimizer's step"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker that computes for 20 ms of a step; one AllReduce of its gradients takes 19 ms."""
    found = Worker(monkeypatch)
    for _ in range(6):
        found.step(own_s=0.02, wait_s=0.01, between_s=0.0, transfer_s=0.019)
    return found


def settled(network: Network | None = NETWORK, **turns: list[float]) -> Choice:
    plan = PIECES if "pieces" in turns else WHOLE
    choice = Choice(plan=plan, network=network, ranks=2, trials=dict(turns))
    choice.computing_s = [0.02, 0.02]
    choice.settle("it was the fastest")
    return choice


def met(steps: int) -> Barriers:
    """Barriers of ten steps, of which so many met one."""
    barriers = Barriers()
    for step in range(10):
        barriers.steps = step + 1
        if step < steps:
            barriers.meet(READ, ["a"])
    return barriers


def test_what_could_be_won_and_was_is_told_beside_the_baseline(worker: Worker) -> None:
    choice = settled(whole=[0.031, 0.031], pieces=[0.025, 0.025])
    assert gain_line(worker.recorder, choice, Barriers()) == (
        "gain: 1.24x of 'whole', of at most about 1.55x: a step of 'whole' takes 31.0 ms, its"
        " computing 20.0 ms, the network 19.0 ms in one transfer"
    )
    assert gain_line(worker.recorder, settled(whole=[0.03]), Barriers()).startswith(
        "gain: none, as 'whole' is in force; another plan could gain at most about 1.50x: "
    )


def test_the_bound_is_of_the_steps_that_the_gain_is_of(worker: Worker) -> None:
    """The profile was quiet, and the turns of the trials, which computed for longer, were not."""
    choice = settled(whole=[0.12, 0.13], pieces=[0.1, 0.1])
    choice.computing_s = [0.08, 0.09]
    assert gain_line(worker.recorder, choice, Barriers()).startswith(
        "gain: 1.25x of 'whole', of at most about 1.47x: a step of 'whole' takes 125.0 ms, its"
        " computing 85.0 ms"
    )


def test_how_far_off_the_gain_may_be_is_said_with_it_and_nowhere_else(worker: Worker) -> None:
    choice = settled(whole=[0.031, 0.031], pieces=[0.025, 0.025])
    choice.gain = 1.2, 0.021
    line = gain_line(worker.recorder, choice, Barriers())
    assert line.startswith(
        "gain: 1.20x of 'whole' (1.18x to 1.23x by 2 turns of that), of at most about 1.55x: "
    )
    said = explanation(worker.recorder, choice, Barriers())
    assert said.count("1.20x") == said.count("1.18x to 1.23x") == 1
    # Of a network that has no measured all-reduce there is no bound.
    choice = settled(Network(num_workers=2), whole=[0.031, 0.031], pieces=[0.025, 0.025])
    choice.gain = 1.2, 0.021
    assert (
        gain_line(worker.recorder, choice, Barriers())
        == "gain: 1.20x of 'whole' (1.18x to 1.23x by 2 turns of that)"
    )


def test_a_single_turn_of_one_tells_of_the_fastest_as_the_check_of_a_kept_choice_does(worker: Worker) -> None:
    # Ours came before theirs and behind: the first was disturbed, and is no pair of theirs.
    choice = settled(whole=[0.031], pieces=[0.036, 0.025])
    assert gain_line(worker.recorder, choice, Barriers()).startswith(
        "gain: 1.24x of 'whole' (by one turn of that), of at most"
    )


def test_the_line_that_has_the_rest_is_named_where_most_steps_met_it(worker: Worker) -> None:
    choice = settled(whole=[0.03, 0.03], pieces=[0.025, 0.025])
    line = gain_line(worker.recorder, choice, met(9))
    assert f"; the rest is held by: {READ}, first at " in line
    assert "test_gain.py:" in line
    assert "the rest" not in gain_line(worker.recorder, choice, met(4))
    # Nothing is left to hold.
    most = settled(whole=[0.03, 0.03], pieces=[0.02, 0.02])
    assert "the rest" not in gain_line(worker.recorder, most, met(9))


def test_where_there_is_nothing_to_win_that_is_said(worker: Worker) -> None:
    assert gain_line(worker.recorder, settled(whole=[0.0202]), Barriers()).startswith(
        "gain: there is none to have: a step of 'whole' takes 20.2 ms, its computing 20.0 ms"
    )


def test_waiting_that_no_transfer_explains_is_no_gain_to_have(worker: Worker) -> None:
    """A step computes for 20 ms, and one transfer takes 19 ms; it takes as long as two of them besides."""
    others = "; it waits for more than that: other ranks are later, or the network slower than measured"
    assert gain_line(worker.recorder, settled(whole=[0.059]), Barriers()).endswith(others)
    assert not gain_line(worker.recorder, settled(whole=[0.057]), Barriers()).endswith(others)


def test_nothing_is_said_of_what_is_not_known(worker: Worker) -> None:
    unsettled = Choice(plan=WHOLE, network=NETWORK, trials={"whole": [0.03]}, computing_s=[0.02])
    for choice in (settled(), settled(None, whole=[0.03]), unsettled):
        assert gain_line(worker.recorder, choice, Barriers()) == ""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (0.17, "1.01x to 1.42x by 2 turns of that"),
        (0.182, "1.00x to 1.44x by 2 turns of that, so it may be chance"),
        (0.19, "0.99x to 1.45x by 2 turns of that, so it may be chance"),
    ],
)
def test_a_gain_that_the_noise_explains_may_be_chance(worker: Worker, error: float, told: str) -> None:
    choice = settled(whole=[0.031, 0.031], pieces=[0.025, 0.025])
    choice.gain = 1.2, error
    line = gain_line(worker.recorder, choice, Barriers())
    assert line.startswith(f"gain: 1.20x of 'whole' ({told}), of at most")


def test_where_the_baseline_alone_was_in_force_the_bound_is_of_its_last_steps(worker: Worker) -> None:
    """The profile's steps took twice as long: they were the first ones."""
    choice = settled()
    choice.profiled_s, choice.computing_s = {"whole": [0.06, 0.06]}, [0.03, 0.03]
    assert gain_line(worker.recorder, choice, Barriers()) == (
        "gain: none, as 'whole' is in force; another plan could gain at most about 1.50x: a step of 'whole'"
        " takes 30.0 ms, its computing 20.0 ms, the network 19.0 ms in one transfer"
    )
    worker.recorder.forget()
    assert gain_line(worker.recorder, choice, Barriers()).startswith(
        "gain: none, as 'whole' is in force; another plan could gain at most about 2.00x: "
    )


def test_of_a_policy_that_was_asked_for_and_not_tried_no_gain_is_told(worker: Worker) -> None:
    choice = settled()
    choice.plan, choice.profiled_s = PIECES, {"whole": [0.03, 0.03]}
    assert gain_line(worker.recorder, choice, Barriers()).startswith(
        "gain: not known, as it had no turns beside 'whole', of at most about 1.50x: a step of 'whole'"
        " takes 30.0 ms"
    )


def test_a_barrier_of_every_step_is_the_usual_one() -> None:
    barriers = met(3)
    assert barriers.usual() == ""
    barriers.stand("gradients that may be sparse wait", ["a"])
    assert barriers.usual() == "gradients that may be sparse wait"
