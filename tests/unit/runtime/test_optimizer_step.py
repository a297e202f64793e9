"""An optimizer's groups taken apart for the buckets of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hocket.runtime.training.optimizer_step import PartialStep, _parts, run_together


class Counted(list):
    """A list that knows how often somebody went through it."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


def test_each_share_has_its_parameters_and_their_groups_settings() -> None:
    a, b, c, d = (torch.nn.Parameter(torch.zeros(1)) for _ in range(4))
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([{"params": [a, b], "lr": rate}, {"params": [c, d], "lr": 0.2}], lr=1.0)
    both, one, none = _parts(optimizer, [[c, b], [d], []])
    rate.fill_(9.0)  # as a scheduler does before the step runs
    assert {k: (group["params"], float(group["lr"])) for k, group in both.items()} == {
        0: ([b], float(torch.tensor(0.1))),
        1: ([c], 0.2),
    }
    assert {k: (group["params"], group["lr"]) for k, group in one.items()} == {1: ([d], 0.2)}
    assert none == {}


def test_many_buckets_go_through_the_parameters_once() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(50)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    members = optimizer.param_groups[0]["params"] = Counted(parameters)
    parts = _parts(optimizer, [[p] for p in parameters])
    assert [group["params"] for part in parts for group in part.values()] == [[p] for p in parameters]
    assert members.times == 1


def test_parts_of_one_call_run_in_one_step_and_calls_in_their_order() -> None:
    a, b, c, d = (torch.nn.Parameter(torch.zeros(1)) for _ in range(4))
    optimizer = torch.optim.SGD([{"params": [a, b, d]}, {"params": [c]}], lr=1.0)
    stepped = []

    class Noting(torch.optim.SGD):
        def step(self) -> None:  # type: ignore[override]
            stepped.append([(group["params"], group["lr"]) for group in self.param_groups])

    optimizer.__class__ = Noting
    first = [PartialStep(optimizer, part, call=1) for part in _parts(optimizer, [[a], [c, b]])]
    for group in optimizer.param_groups:
        group["lr"] = 2.0
    second = [PartialStep(optimizer, part, call=2) for part in _parts(optimizer, [[a], [d]])]
    run_together([second[0], first[0], second[1], first[1]])
    assert stepped == [[([a, b], 1.0), ([c], 1.0)], [([a, d], 2.0)]]
