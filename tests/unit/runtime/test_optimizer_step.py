"""An optimizer's groups taken apart for the buckets of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hocket.runtime.training.optimizer_step import _parts


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
    assert [(group["params"], float(group["lr"])) for group in both] == [
        ([b], float(torch.tensor(0.1))),
        ([c], 0.2),
    ]
    assert [(group["params"], group["lr"]) for group in one] == [([d], 0.2)]
    assert none == []


def test_many_buckets_go_through_the_parameters_once() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(50)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    members = optimizer.param_groups[0]["params"] = Counted(parameters)
    parts = _parts(optimizer, [[p] for p in parameters])
    assert [group["params"] for part in parts for group in part] == [[p] for p in parameters]
    assert members.times == 1
