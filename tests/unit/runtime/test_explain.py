"""What limits a step, said of steps whose times are known."""

from __future__ import annotations

import re
from types import SimpleNamespace

import msgspec
import pytest
import torch

from hocket.graph import Plan, Reduction
from hocket.network import MeasuredReduction, Network
from hocket.runtime.observe import recorder as module
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.explain import explanation
from hocket.runtime.training.plan_trials import Choice

MB = 1_000_000
# 10 ms for each of the two parameters' gradients, 1 ms of them a startup.
NETWORK = Network(
    bandwidth_bps=8 * MB / 9e-3,
    num_workers=2,
    reduction=MeasuredReduction(workers=2, a_s=1e-3, b_s_per_byte=9e-3 / MB),
)
WHOLE = Plan(
    policy="whole",
    model="m",
    architecture="allreduce",
    reductions=(Reduction(parameters=("a",)), Reduction(parameters=("b",))),
    compute_order=None,
)
# b's in quarters, a's in two chunks, each of which starts up: 5 * 1 + 2 * 9 ms.
PIECES = Plan(
    policy="pieces",
    model="m",
    architecture="allreduce",
    reductions=(
        Reduction(parameters=("b",), slice=(0, 1, 4)),
        Reduction(parameters=("a",), chunks=2),
        Reduction(parameters=("b",), slice=(1, 2, 4)),
        Reduction(parameters=("b",), slice=(2, 4, 4)),
    ),
    compute_order=None,
)


class Worker:
    """A recorder of steps on a clock of its own; ``parameters`` of a megabyte each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.steps = 100.0, 0
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.parameters = {name: torch.nn.Parameter(torch.zeros(MB // 4)) for name in ("a", "b")}
        self.recorder = SpanRecorder(self.parameters)

    def step(self, *, own_s: float, wait_s: float, between_s: float, transfer_s: float) -> None:
        """Half of ``own_s`` forward, half backward; two transfers in a row from the step's begin on."""
        began = self.now
        self.steps += 1
        self.recorder.begin_step(self.steps)
        self.recorder.record_transfer("reduce", "b", began, began + transfer_s / 2)
        self.recorder.record_transfer("reduce", "a", began + transfer_s / 2, began + transfer_s)
        self.now += wait_s
        self.recorder.record_span("wait", ["a"], began)
        self.recorder.reads("layer", list(self.parameters.values()))
        self.now += own_s / 2
        self.recorder.forward_ended()
        for name in ("b", "a"):
            self.now += own_s / 4
            self.recorder.gradient_completed(self.parameters[name])
        self.recorder.backward_ended()
        self.now += between_s

    def told(self, plan: Plan = WHOLE, network: Network | None = NETWORK, **times: float) -> list[str]:
        for _ in range(6):
            self.step(**{"own_s": 0.0, "wait_s": 0.0, "between_s": 0.0, "transfer_s": 0.0} | times)
        choice = Choice(plan=plan, network=network, ranks=2)
        return explanation(self.recorder, choice, Barriers()).splitlines()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


EXPOSED = "neither computing nor the network alone, as gradients that are ready last are needed first"


def limit(lines: list[str]) -> str:
    (line,) = (line for line in lines if line.startswith("what limits a step: "))
    return re.sub("; this rank waits for [0-9]+% of a step$", "", line.removeprefix("what limits a step: "))


def test_computing_limits_a_step_that_does_nothing_else(worker: Worker) -> None:
    lines = worker.told(own_s=0.098, between_s=0.002, transfer_s=0.020)
    assert limit(lines) == "computing; this rank hardly ever waits"
    assert lines[1] == (
        "a step: 100.0 ms (mean of steps 1 to 5 on this rank); computing 98.0 ms (updates 0.0 ms),"
        " code between steps 2.0 ms, waiting 0.0 ms,"
        " transfers under way 20.0 ms (20.0 ms expected of the network as measured)"
    )


def test_time_between_steps_is_not_computing(worker: Worker) -> None:
    lines = worker.told(own_s=0.030, between_s=0.070, transfer_s=0.020)
    assert "computing 30.0 ms" in lines[1]
    assert "code between steps 70.0 ms" in lines[1]
    assert limit(lines) == (
        "code between steps (data loading, validation and the like), then computing;"
        " this rank hardly ever waits"
    )


def test_a_loader_that_takes_all_the_time_is_the_only_limit(worker: Worker) -> None:
    lines = worker.told(own_s=0.004, between_s=0.096)
    assert limit(lines).startswith("code between steps (data loading, validation and the like); ")


def test_updates_after_the_backward_pass_are_computing(worker: Worker) -> None:
    recorder = worker.recorder
    for _ in range(3):
        worker.step(own_s=0.060, wait_s=0.0, between_s=0.010, transfer_s=0.0)
        began = worker.now
        worker.now += 0.030
        recorder.record_updates([["a"], ["b"]], began)
    # Updated together, they are told apart, one behind the other.
    (_, first, _, end), (_, second, begun, last) = [s for s in recorder.spans if s[0] == "update"][-2:]
    assert (first, second, end, last) == ("update a", "update b", begun, pytest.approx(worker.now))
    line = explanation(recorder, Choice(plan=WHOLE), Barriers()).splitlines()[1]
    assert "computing 90.0 ms (updates 30.0 ms), code between steps 10.0 ms" in line


def test_how_much_is_waiting_is_told_beside_what_limits(worker: Worker) -> None:
    lines = worker.told(own_s=0.084, wait_s=0.016, transfer_s=0.050)
    assert lines[2].startswith("what limits a step: other ranks that are later")
    assert lines[2].endswith("; this rank waits for 16% of a step")


def test_the_network_limits_a_step_when_transfers_take_what_they_should(worker: Worker) -> None:
    lines = worker.told(own_s=0.010, wait_s=0.012, transfer_s=0.022)
    assert limit(lines) == "the network, which is hardly ever idle"


def test_transfers_that_take_far_longer_wait_for_other_ranks(worker: Worker) -> None:
    lines = worker.told(own_s=0.010, wait_s=0.040, transfer_s=0.050)
    assert limit(lines) == (
        "other ranks that are later, or a network that is slower than measured:"
        " transfers take 2.5 times what it needs for them"
    )


@pytest.mark.parametrize("network", [None, Network(bandwidth_bps=8 * MB / 9e-3, num_workers=2)])
def test_without_a_measured_network_nobody_can_tell(worker: Worker, network: Network | None) -> None:
    lines = worker.told(network=network, own_s=0.010, wait_s=0.040, transfer_s=0.050)
    assert limit(lines) == "the network, which is hardly ever idle, or other ranks that are later"
    why = (
        "no network measured yet"
        if network is None
        else "the network that was given has no measured all-reduce"
    )
    assert lines[1].endswith(f"transfers under way 50.0 ms ({why})")


def test_slices_and_chunks_cost_a_startup_each(worker: Worker) -> None:
    lines = worker.told(PIECES, own_s=0.010, wait_s=0.012, transfer_s=0.022)
    assert lines[1].endswith("(23.0 ms expected of the network as measured)")


def test_transfers_across_the_edges_count_for_the_part_within(worker: Worker) -> None:
    lines = worker.told(own_s=0.010, wait_s=0.010, transfer_s=0.020)
    begun = list(worker.recorder.begins)
    worker.recorder.record_transfer("reduce", "late", begun[0] - 1.0, begun[0] + 0.001)
    worker.recorder.record_transfer("reduce", "early", begun[-1] - 0.001, begun[-1] + 1.0)
    again = explanation(worker.recorder, Choice(plan=WHOLE, network=NETWORK), Barriers()).splitlines()
    assert again[1] == lines[1]


def test_between_idle_networks_and_processors_it_is_what_is_exposed(worker: Worker) -> None:
    lines = worker.told(own_s=0.020, wait_s=0.010, transfer_s=0.022)
    assert limit(lines) == EXPOSED
    assert "longest waits, a step: a 10.0 ms" in lines
    lines = worker.told(network=None, own_s=0.020, wait_s=0.010, transfer_s=0.022)
    assert limit(lines) == f"{EXPOSED}, or other ranks that are later"


def test_a_later_rank_is_the_limit_also_where_the_network_rests(worker: Worker) -> None:
    lines = worker.told(own_s=0.030, wait_s=0.070, transfer_s=0.080)
    assert limit(lines).startswith("other ranks that are later")


def test_the_step_graph_keeps_the_time_between_steps(worker: Worker) -> None:
    worker.told(own_s=0.040, between_s=0.060)
    graph = worker.recorder.graph("m", 1)
    assert graph is not None
    durations_s = dict(zip(graph.operation_names, graph.oracle_s.tolist(), strict=True))
    assert durations_s["backward between steps"] == pytest.approx(0.060)
    assert sum(durations_s.values()) == pytest.approx(0.100)


def test_a_plan_that_is_not_the_fastest_of_the_trials_is_explained(worker: Worker) -> None:
    choice = Choice(plan=WHOLE, trials={"whole": [0.010, 0.012], "other": [0.009]})
    choice.settle("other was no better in the final")
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[1:3] == [
        "tried: 'other' 9.0 ms (median 9.0 of 1 turn), 'whole' 10.0 ms (median 11.0 of 2 turns) a step, in"
        " the fastest of each one's turns of 2 steps, on the slowest rank",
        "'whole' stays: other was no better in the final",
    ]


def test_until_a_plan_stays_the_phase_is_told(worker: Worker) -> None:
    choice = Choice(plan=WHOLE)
    choice.enter("profiling", ": six steps")
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[0].startswith("plan 'whole', for now (profiling): ")
    assert lines[-1] == (
        "no plan has settled yet: that of an earlier run is tried, which takes about ten steps where it holds"
    )
    choice.enter("profiling", ": four steps", 58)
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[-1] == (
        "no plan has settled yet: it takes at most 58 more steps, and those that are trained while plans are"
        " made, which takes seconds"
    )
    choice.enter("learning", ": of a plan that was given", 1)
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[-1] == "no plan has settled yet: it takes at most 1 more step"
    choice.enter("trying 'other'", ": plan 2 of 4", 46)
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[-1] == "no plan has settled yet: it takes at most 46 more steps"
    choice.settle("other was no better")
    assert "no plan has settled" not in explanation(worker.recorder, choice, Barriers())


def test_a_mean_names_the_steps_that_it_is_of(worker: Worker) -> None:
    lines = worker.told(own_s=0.010)
    worker.recorder.forget()
    for _ in range(2):
        worker.step(own_s=0.010, wait_s=0.0, between_s=0.0, transfer_s=0.0)
    alone = explanation(worker.recorder, Choice(plan=WHOLE), Barriers()).splitlines()
    lines = worker.told(own_s=0.010) + worker.told(own_s=0.010)
    assert alone[1].startswith("a step: 10.0 ms (step 7 alone on this rank);")
    assert lines[1].startswith("a step: 10.0 ms (mean of steps 7 to 13 on this rank);")
    assert lines[-3].startswith("a step: 10.0 ms (mean of steps 12 to 19 on this rank);")


def test_a_plan_that_was_given_says_of_which_network_it_knows(worker: Worker) -> None:
    worker.told(own_s=0.010, transfer_s=0.020)
    choice = Choice(plan=WHOLE, ranks=2)
    choice.settle("it was given, and no other was tried")
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[2].endswith("(no network was measured, as the plan was given)")
    choice.network, choice.network_given = NETWORK, True
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[2].endswith("(20.0 ms expected of the network as given)")
    alone = explanation(worker.recorder, Choice(plan=WHOLE), Barriers()).splitlines()
    assert alone[1].endswith("(one rank alone sends nothing)")


@pytest.mark.parametrize(("workers", "told"), [(None, False), (2, False), (1, True), (4, True)])
def test_a_plan_for_another_number_of_workers_is_said_to_be(
    worker: Worker, workers: int | None, told: bool
) -> None:
    plan = msgspec.structs.replace(WHOLE, workers=workers)
    text = explanation(worker.recorder, Choice(plan=plan, ranks=2), Barriers())
    planned = "1 worker" if workers == 1 else f"{workers} workers"
    assert (f"\nplan 'whole' was planned for {planned}; this job has 2\n" in text) == told


@pytest.mark.parametrize(
    ("turns_s", "said"),
    [
        ([0.010, 0.009, 0.011], []),
        ([0.005], ["a step takes 2 times what it did in"]),
        ([0.040], ["a step takes 0.25 times what it did in"]),
    ],
)
def test_steps_unlike_the_turns_by_which_the_plan_was_chosen_are_said(
    worker: Worker, turns_s: list[float], said: list[str]
) -> None:
    worker.told(own_s=0.010)
    choice = Choice(plan=WHOLE, trials={"whole": turns_s, "other": [0.009]})

    def told() -> list[str]:
        lines = explanation(worker.recorder, choice, Barriers()).splitlines()
        return [line.partition(" the turns by which")[0] for line in lines if " the turns by which" in line]

    assert told() == []
    choice.settle("it won")
    assert told() == said


def test_a_clipped_step_is_told_what_its_plan_waits_for_and_that_others_are_made(worker: Worker) -> None:
    choice = Choice(plan=WHOLE, clips=True)
    before = explanation(worker.recorder, choice, Barriers()).splitlines()[1]
    assert before.endswith("; plans made for it may sum up in halves, which waits for less")
    choice.settle("it was given")
    after = explanation(worker.recorder, choice, Barriers()).splitlines()[1]
    assert after.endswith("its plan sums gradients up whole, and the norm waits for all of them")


def test_what_may_run_on_waits_where_the_norm_waits_for_all(worker: Worker) -> None:
    running_on = msgspec.structs.replace(
        WHOLE, reductions=tuple(msgspec.structs.replace(r, window="forward") for r in WHOLE.reductions)
    )
    choice = Choice(plan=running_on, clips=True)
    choice.settle("it was given")
    lines = explanation(worker.recorder, choice, Barriers()).splitlines()
    assert lines[0].endswith(
        ", 2 may run on into the next forward pass, but none does in a step that clips, as its norm waits for"
        " all (below); 0 steps trained"
    )
    choice.clips = False
    assert "none does" not in explanation(worker.recorder, choice, Barriers())


def test_ranks_on_one_machine_are_told_that_there_is_little_to_gain(worker: Worker) -> None:
    said = (
        "all 2 ranks are on one machine, where networks are hardly waited for: there is little to gain here"
    )
    for one_machine in (True, False):
        choice = Choice(plan=WHOLE, ranks=2, one_machine=one_machine)
        assert (f"\n{said}" in explanation(worker.recorder, choice, Barriers())) == one_machine
