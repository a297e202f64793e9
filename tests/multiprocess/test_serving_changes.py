"""What scripts change of weights and optimizer state, which servers hold, is kept or refused; never lost."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from hocket.errors import HocketError
from hocket.launch import Rule
from tests.multiprocess.serving_setups import OPTIMIZERS, SYNC2, Layers, equal, made, step
from tests.multiprocess.setups import batch
from tests.serving import served

pytestmark = pytest.mark.slow

Change = Callable[[nn.Module], None]
STEPS, CHANGED = 8, 5  # beyond the first steps, which compare all elements


def trained(optimizer: str, after: Callable[[int, nn.Module, Any], None], rule: Rule | None = None) -> Any:
    """Each worker's model and optimizer, after a training with ``after`` between its steps; then detached."""

    rule = rule or Rule(mode="async")
    models = [made(Layers) for _ in range(rule.workers)]

    def work(worker: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = models[worker]
        own = OPTIMIZERS[optimizer](model)
        job.train(worker, model, own)
        for number in range(STEPS):
            step(model, own, *batch(worker, number))
            after(number, model, own)
        model.hocket.detach()
        return model, own

    with served(rule) as job:
        return job.on_workers(work)


def alone(optimizer: str, after: Callable[[int, nn.Module, Any], None]) -> Any:
    """The same in one process."""
    model = made(Layers)
    own = OPTIMIZERS[optimizer](model)
    for number in range(STEPS):
        step(model, own, *batch(0, number))
        after(number, model, own)
    return model, own


def copied(model: nn.Module) -> None:
    with torch.no_grad():
        model.layers[5].weight.copy_(torch.ones(5, 16))


def clipped(model: nn.Module) -> None:
    for p in model.parameters():
        p.data.clamp_(-0.01, 0.01)


def averaged(model: nn.Module) -> None:
    for p in model.parameters():
        p.data = 0.9 * p.data


def flattened(model: nn.Module) -> None:
    vector_to_parameters(parameters_to_vector(model.parameters()) + 0.1, model.parameters())


def pruned(model: nn.Module) -> None:
    """Single elements, in the middle of the largest parameter."""
    model.layers[3].weight.data[8, 100:120] = 5.0


@pytest.mark.parametrize("change", [copied, clipped, averaged, flattened])
def test_weights_that_are_changed_in_any_step_are_refused(change: Change) -> None:
    def after(number: int, model: nn.Module, _: Any) -> None:
        if number == CHANGED:
            before = copy.deepcopy(model.state_dict())
            change(model)
            assert not equal(before, model.state_dict())

    with pytest.raises(HocketError, match=r"'layers\.\d\.weight' was changed between steps"):
        trained("sgd", after)


def test_single_weights_that_are_changed_without_a_mark_are_refused_some_steps_later() -> None:
    with pytest.raises(HocketError, match=r"'layers\.3\.weight' was changed between steps"):
        trained("sgd", lambda number, model, _: pruned(model) if number >= 2 else None)


@pytest.mark.parametrize("held", [torch.Tensor.detach, lambda p: p.data], ids=["detached", "data"])
def test_weights_that_are_changed_before_they_have_come_are_refused(held: Any) -> None:
    """By what shares their memory, so that nobody waits for them."""
    aliases: list[torch.Tensor] = []

    def after(number: int, model: nn.Module, _: Any) -> None:
        if number == 2:
            aliases.extend(held(p) for p in model.parameters())
        for alias in aliases if number == CHANGED else []:
            alias.mul_(0.5)

    with pytest.raises(HocketError, match=r"'layers\.0\.weight' was changed between steps"):
        trained("sgd", after)


def test_weights_that_the_model_changes_itself_are_refused() -> None:
    """As ``max_norm`` does, from the step on in which it has something to do."""

    def work(worker: int) -> None:
        model = nn.Sequential(nn.Embedding(5, 3, max_norm=2.0), nn.Linear(3, 2))
        with torch.no_grad():
            model[0].weight.fill_(1.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        job.train(worker, model, optimizer)
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.tensor([1, 2])).sum().backward()
            model[0].weight.grad = -torch.ones(5, 3) / 10
            optimizer.step()

    with served(Rule(mode="async")) as job, pytest.raises(HocketError, match=r"'0\.weight' was changed"):
        job.on_workers(work)


def test_agents_that_change_what_they_pull_are_refused() -> None:
    def work(worker: int) -> None:
        model = made(Layers).eval()
        job.train(worker, model, OPTIMIZERS["sgd"](model))
        for number in range(STEPS):
            with torch.no_grad():
                model(batch(0, 0)[0])
                if number == CHANGED:
                    copied(model)

    with (
        served(Rule(mode="inference")) as job,
        pytest.raises(HocketError, match=r"'layers\.5\.weight' was changed between steps"),
    ):
        job.on_workers(work)


def test_averages_may_take_the_weights_place_in_an_evaluation() -> None:
    def evaluated(kept: list[torch.Tensor], seen: list[float]) -> Callable[[int, nn.Module, Any], None]:
        def after(_: int, model: nn.Module, __: Any) -> None:
            here = list(model.parameters())
            kept[:] = [0.9 * old + 0.1 * p.detach() for old, p in zip(kept or here, here, strict=True)]
            mine = [p.detach().clone() for p in here]
            for p, value in zip(here, kept, strict=True):
                p.data.copy_(value)
            with torch.no_grad():
                seen.append(functional.cross_entropy(model(batch(0, 50)[0]), batch(0, 50)[1]).item())
            for p, value in zip(here, mine, strict=True):
                p.data.copy_(value)

        return after

    found: list[float] = []
    wanted: list[float] = []
    ((model, _),) = trained("momentum", evaluated([], found))
    expected, _ = alone("momentum", evaluated([], wanted))
    assert found == wanted
    assert equal(model.state_dict(), expected.state_dict())


def test_a_gradient_that_is_changed_late_and_without_a_mark_is_refused() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(STEPS):
            optimizer.zero_grad()
            functional.cross_entropy(model(batch(worker, number)[0]), batch(worker, number)[1]).backward()
            for p in model.parameters() if number == CHANGED else []:
                p.grad.data.mul_(0.5)
            optimizer.step()

    with (
        served(Rule(mode="async")) as job,
        pytest.raises(HocketError, match="gradients were changed between backward pass and optimizer"),
    ):
        job.on_workers(work)


@pytest.mark.parametrize("group", [0, 1], ids=["removed", "moved"])
def test_a_parameter_that_leaves_its_group_is_refused(group: int) -> None:
    def after(number: int, _: nn.Module, optimizer: Any) -> None:
        if number == CHANGED:
            last = optimizer.param_groups[0]["params"].pop()
            if group:
                optimizer.add_param_group({"params": [last], "lr": 0.0})

    with pytest.raises(HocketError, match=r"'layers\.5\.bias' has a gradient, but is no longer in group 0"):
        trained("sgd", after)


# The optimizer's state.


def test_the_optimizers_state_is_the_servers_for_whoever_looks() -> None:
    def read(seen: list[float]) -> Callable[[int, nn.Module, Any], None]:
        def after(number: int, model: nn.Module, optimizer: Any) -> None:
            if number % 2:
                seen.extend(optimizer.state[p]["exp_avg"].sum().item() for p in model.parameters())
            if number == CHANGED:
                for each in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
                    assert type(each) is torch.optim.Adam
                    seen.extend(state["exp_avg_sq"].sum().item() for state in each.state.values())

        return after

    found: list[float] = []
    wanted: list[float] = []
    ((model, optimizer),) = trained("adam", read(found))
    expected, alike = alone("adam", read(wanted))
    assert found == wanted
    assert len(found) == (STEPS // 2 + 2) * 6
    assert equal(model.state_dict(), expected.state_dict())
    assert type(optimizer) is torch.optim.Adam
    step(model, optimizer, *batch(0, STEPS))
    step(expected, alike, *batch(0, STEPS))
    assert equal(model.state_dict(), expected.state_dict())


def zeroed(optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["exp_avg"].zero_()


def zeroed_without_a_mark(optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["exp_avg"].data.zero_()


def cleared(optimizer: Any) -> None:
    optimizer.state.clear()


def replaced(optimizer: Any) -> None:
    optimizer.state = defaultdict(dict)


def forgotten(optimizer: Any) -> None:
    optimizer.state[optimizer.param_groups[0]["params"][0]] = {}


def begun_again(optimizer: Any) -> None:
    for state in optimizer.state.values():
        state["step"] = torch.zeros(())


EDITS = [zeroed, zeroed_without_a_mark, cleared, replaced, forgotten, begun_again]


@pytest.mark.parametrize("edit", EDITS)
def test_an_optimizers_state_that_is_changed_is_refused(edit: Callable[[Any], None]) -> None:
    def after(number: int, _: nn.Module, optimizer: Any) -> None:
        if number == CHANGED:
            edit(optimizer)

    with pytest.raises(HocketError, match=r"the optimizer's state of 'layers\.0\.weight' was changed"):
        trained("adam", after)


def test_an_optimizers_state_that_is_held_and_changed_later_is_refused() -> None:
    held: list[torch.Tensor] = []

    def after(number: int, model: nn.Module, optimizer: Any) -> None:
        if number == 2:
            held.extend(optimizer.state[p]["momentum_buffer"] for p in model.parameters())
        for buffer in held if number == CHANGED else []:
            buffer.zero_()

    with pytest.raises(HocketError, match=r"the optimizer's state of 'layers\.0\.weight' was changed"):
        trained("momentum", after)


def test_workers_look_at_the_state_when_they_like_and_move_what_is_theirs() -> None:
    """As frameworks do that put an optimizer's state on its device: with the tensors that were there."""

    def after(number: int, _: nn.Module, optimizer: Any) -> None:
        optimizer.state["notes"] = {"seen": number}
        for p, state in optimizer.state.items() if number in (1, 4) else []:
            if isinstance(p, nn.Parameter):
                optimizer.state[p] = {key: value.to("cpu") for key, value in state.items()}

    found = trained("adam", after, SYNC2)
    undisturbed = trained("adam", lambda *_: None, SYNC2)
    assert equal(found[0][0].state_dict(), undisturbed[0][0].state_dict())
    assert equal(found[0][0].state_dict(), found[1][0].state_dict())


def test_what_is_changed_behind_the_last_step_stays_when_the_model_is_detached() -> None:
    def after(number: int, model: nn.Module, optimizer: Any) -> None:
        if number == STEPS - 1:
            zeroed(optimizer)
            copied(model)

    ((model, optimizer),) = trained("adam", after)
    assert all(not state["exp_avg"].any() for state in optimizer.state.values())
    assert torch.equal(model.layers[5].weight, torch.ones(5, 16))
