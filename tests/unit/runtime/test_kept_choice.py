"""Choices that were kept: what is read of them, and whether they still hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.network import MeasuredReduction, Network
from hocket.network.file import MeasuredPoint
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training import kept_choice, kept_choice_check, plan_trials
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.kept_choice import KeptChoice, keep, kept_of_document, key_of_training
from hocket.runtime.training.kept_choice_check import still_holds
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.training.step_inputs import InputNotes, StepInputs
from hocket.runtime.training.step_settings import StepSettings
from hocket.runtime.training.trainable import outline
from hocket.runtime.transfers.gloo_group import GlooGroup
from tests.unit.runtime.test_plan_trials import Clock, plan_of

MODEL = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.zeros(3))})
OUTLINE = outline(MODEL, dict(MODEL.named_parameters()))
KEPT = KeptChoice(
    key="k",
    model="test",
    ranks=2,
    torch="2",
    hocket="0",
    chosen="2026-01-02",
    plan=plan_of("a+"),
    network=Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=1e-3, b_s_per_byte=1e-8)),
    point=MeasuredPoint(size_bytes=65536, seconds=0.01),
    inputs=(StepInputs(1, ((32, 8), (32,))), StepInputs(None, ((32, None),))),
    step_s={"ddp": 1.0, "a+": 0.8},
)


def checked(
    monkeypatch: pytest.MonkeyPatch,
    step_s: dict[str, float],
    kept: KeptChoice = KEPT,
    again_s: Sequence[float] = (0.01,),
    disturbed_s: dict[int, float] | None = None,
) -> tuple[bool, Choice, int]:
    """Whether ``kept`` holds where steps take so long, what is in force then, and after how many steps."""
    clock = Clock(step_s, disturbed_s or {})
    clock.step("ddp")
    clock.steps = 0
    recorder = SpanRecorder({})
    monkeypatch.setattr(recorder, "now", lambda: clock.now_s)
    monkeypatch.setattr(plan_trials, "max_over_ranks", lambda values, _: values)
    training = SimpleNamespace(
        enforce=lambda _: None,
        finish_transfers=lambda: None,
        compiled_step=None,
        sparse_parameters=frozenset(),
        parameters={"w": torch.nn.Parameter(torch.zeros(3))},
        recorder=recorder,
    )
    choice, measured_s = Choice(plan=plan_of("ddp")), itertools.cycle(again_s)
    check = still_holds(
        cast(AllReduceTraining, training),
        choice,
        kept,
        lambda _: next(measured_s),
        cast(GlooGroup, cast(Any, None)),
    )
    while True:
        try:
            next(check)
        except StopIteration as end:
            return end.value, choice, clock.steps
        clock.step(choice.plan.policy)


def test_a_plan_that_is_still_ahead_is_settled_in_nine_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    holds, choice, steps = checked(monkeypatch, {"ddp": 1.0, "a+": 0.8})
    assert (holds, choice.plan.policy, choice.settled, steps) == (True, "a+", True, 9)
    assert choice.why == (
        "an earlier run chose it on 2026-01-02, and it was not clearly slower in turns of 2 steps beside"
        " 'ddp'"
    )
    assert choice.network == KEPT.network


@pytest.mark.parametrize(("ours", "steps"), [(1.05, 9), (1.2, 6), (3.0, 6)])
def test_a_plan_that_loses_leaves_the_baseline_in_force(
    ours: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, choice, taken = checked(monkeypatch, {"ddp": 1.0, "a+": ours})
    assert (holds, choice.plan.policy, choice.settled, taken) == (False, "ddp", False, steps)
    assert choice.network is None


def test_a_busy_machine_takes_no_choice_back_that_more_turns_had_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps of each turn differ by a half, so that the kept plan's are a fifth longer is no news."""
    disturbed_s = dict.fromkeys((2, 5, 8), 0.5) | {1: 0.2, 7: 0.2}
    holds, choice, _ = checked(monkeypatch, {"ddp": 1.0, "a+": 1.0}, disturbed_s=disturbed_s)
    assert (holds, choice.plan.policy) == (True, "a+")


def test_the_baseline_that_was_kept_stays_where_its_step_takes_what_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = msgspec.structs.replace(KEPT, plan=plan_of("ddp"), step_s={"ddp": 1.0})
    holds, choice, steps = checked(monkeypatch, {"ddp": 1.2}, kept)
    assert (holds, choice.plan.policy, steps) == (True, "ddp", 5)
    assert not checked(monkeypatch, {"ddp": 1.6}, kept)[0]


def test_another_network_or_another_step_is_planned_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for again_s in (0.0126, 0.0079):
        holds, choice, steps = checked(monkeypatch, {"ddp": 1.0, "a+": 0.8}, again_s=[again_s])
        assert (holds, choice.network, steps) == (False, None, 0)
    assert checked(monkeypatch, {"ddp": 1.0, "a+": 0.8}, again_s=[0.0124])[0]
    assert not checked(monkeypatch, {"ddp": 1.6, "a+": 1.2})[0]


def test_one_measurement_of_six_as_it_was_is_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    busy_s = [0.017, 0.016, 0.015, 0.014, 0.013]
    assert checked(monkeypatch, {"ddp": 1.0, "a+": 0.8}, again_s=[*busy_s, 0.012])[0]
    assert not checked(monkeypatch, {"ddp": 1.0, "a+": 0.8}, again_s=[*busy_s, 0.013])[0]


def test_what_is_kept_is_read_back_as_it_was() -> None:
    choice = Choice(plan=KEPT.plan, ranks=2, network=KEPT.network, point=KEPT.point)
    choice.profiled_s, choice.trials = {"ddp": [1.1, 1.3]}, {"ddp": [1.2, 1.0], "a+": [0.8]}
    choice.inputs = KEPT.inputs
    document = msgspec.json.decode(msgspec.json.encode(keep(choice, "k")))
    read = kept_of_document(document, "k", (), OUTLINE, "here")
    assert msgspec.structs.replace(read, torch="2", hocket="0", chosen="2026-01-02") == KEPT


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "hocket.choice/2"},
        {"format": "hocket.plan/1"},
        {"key": "another"},
        {"plan": None},
        {"plan": {"policy": "a"}},
        {
            "plan": msgspec.to_builtins(
                Plan(policy="a", model="m", architecture="allreduce", compute_order=None)
            )
        },
        {"network": {"bandwidth_bps": -1.0}},
        {"point": {"size_bytes": 0, "seconds": 1.0}},
        {"step_s": {"ddp": 0.0}},
        {"step_s": {"ddp": "long"}},
        {"inputs": [{"passes": "one", "shapes": []}]},
    ],
)
def test_what_is_none_or_for_something_else_is_one_line(changes: dict[str, Any]) -> None:
    document = {**msgspec.to_builtins(KEPT), **changes}
    with pytest.raises(HocketError) as refused:
        kept_of_document(document, "k", (), OUTLINE, "here")
    assert str(refused.value).startswith("here")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rank", "inputs", "said"),
    [
        (0, StepInputs(1, ((64, 8), (64,))), "inputs of 32x8 and 32, and rank 0 has 64x8 and 64"),
        (0, StepInputs(2, ((32, 8), (32,))), "inputs of 32x8 and 32, and rank 0 has 32x8 and 32 in 2 passes"),
        (0, StepInputs(1, ((32, 8),)), "inputs of 32x8 and 32, and rank 0 has 32x8"),
        (1, StepInputs(3, ((16, 5),)), "inputs of 32x?, and rank 1 has 16x5 in 3 passes"),
        (0, StepInputs(None, ((32, None), (32,))), ""),
        (0, StepInputs(1, None), ""),
        (1, StepInputs(4, ((32, 9),)), ""),
    ],
)
def test_a_choice_for_other_inputs_is_none(rank: int, inputs: StepInputs, said: str) -> None:
    now = list(KEPT.inputs)
    now[rank] = inputs
    document = msgspec.to_builtins(KEPT)
    if not said:
        assert kept_of_document(document, "k", now, OUTLINE, "here") == KEPT
        return
    with pytest.raises(HocketError) as refused:
        kept_of_document(document, "k", now, OUTLINE, "here")
    assert str(refused.value) == f"here: was chosen for {said}"


def test_a_choice_that_knows_no_inputs_is_for_any() -> None:
    document = msgspec.to_builtins(KEPT)
    del document["inputs"]
    assert kept_of_document(document, "k", KEPT.inputs, OUTLINE, "here").inputs == ()


class Takes(torch.nn.Module):
    """A model of whatever tensors it gets."""

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return given[0]


def test_inputs_are_those_of_passes_that_train_in_steps_that_are_over() -> None:
    steps, model = [0], Takes()
    notes = InputNotes(model, lambda: len(steps))
    for size, length in ((4, 3), (4, 5)):
        with torch.no_grad():
            model(torch.ones(7))
        for _ in range(2):
            model(torch.ones(size, length), torch.ones(size))
        steps.append(0)
    model(torch.ones(4, 9), torch.ones(4))
    assert notes.inputs() == StepInputs(2, ((4, None), (4,)))
    model(torch.ones(2, 2, 2))
    assert notes.inputs() == StepInputs(2, None)
    assert str(notes.inputs()) == "tensors of several shapes in 2 passes"
    notes.end()
    assert not model._forward_pre_hooks


def test_keys_of_another_kind_are_none() -> None:
    documents: list[Any] = [None, [], "text", {}]
    for document in documents:
        with pytest.raises(HocketError):
            kept_of_document(document, "k", (), OUTLINE, "here")


def test_limits_are_the_documented_ones() -> None:
    assert (kept_choice_check._SAME_NETWORK, kept_choice_check._SAME_STEP) == (1.25, 1.5)


def test_a_key_is_of_how_steps_run_and_of_what_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_choice, "gather_values", lambda value, *_: [value])
    choice, group = Choice(plan=KEPT.plan), cast(GlooGroup, None)
    settings = [StepSettings(), StepSettings(compile=True), StepSettings(gradient_dtype=torch.bfloat16)]
    parameters = dict(MODEL.named_parameters())
    keys = [
        key_of_training("test", parameters, choice, group, each, False) for each in (*settings, settings[0])
    ]
    assert len(set(keys)) == len(settings)
    assert keys[0] == keys[-1]
