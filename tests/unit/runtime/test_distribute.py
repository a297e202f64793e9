"""A rank by itself: what it is refused, what stays the model's own, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hocket
from hocket.doctor.doctor import given_plan
from hocket.errors import HocketError


@pytest.mark.usefixtures("alone")
def test_a_rank_whose_timeline_cannot_be_written_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_TIMELINE", str(tmp_path / "missing" / "timeline.json"))
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hocket.distribute(model, optimizer, plan="ddp")
    watch = model.hocket._training.watch
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    with pytest.raises(HocketError, match="missing"):
        model.hocket.detach()
    assert not watch._thread.is_alive()
    (sign,) = watch._signs.read()
    assert sign.finished


@pytest.mark.usefixtures("alone")
def test_a_rank_outside_the_process_group_is_refused() -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(HocketError, match="this rank is not in process_group"):
        hocket.distribute(model, optimizer, process_group=dist.GroupMember.NON_GROUP_MEMBER)


@pytest.mark.usefixtures("alone")
def test_an_empty_variable_names_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_PLAN", "")
    model = torch.nn.Linear(4, 2)
    hocket.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert (model.hocket.plan.policy, given_plan(None).name) == ("ddp", "auto")
    model.hocket.detach()


class Resetting(torch.nn.Linear):
    """Resets more than gradients."""

    resets = 0

    def zero_grad(self, set_to_none: bool = True, times: int = 1) -> None:
        super().zero_grad(set_to_none)
        self.resets += times


@pytest.mark.usefixtures("alone")
def test_a_model_with_its_own_zero_grad_keeps_it() -> None:
    model = Resetting(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hocket.distribute(model, optimizer, plan="ddp")
    model(torch.ones(3, 4)).sum().backward()
    model.zero_grad(times=2)
    assert model.resets == 2
    assert all(p.grad is None for p in model.parameters())
    model.hocket.detach()
    model.zero_grad()
    assert model.resets == 3
