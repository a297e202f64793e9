"""What is refused before anything is attached or sent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hocket.errors import HocketError
from hocket.runtime.training.trainable import optimizers_of, trained_parameters


def test_one_optimizer_or_several() -> None:
    model = torch.nn.Linear(2, 1)
    one = torch.optim.SGD([model.weight], lr=0.1)
    other = torch.optim.Adam([model.bias])
    assert optimizers_of(one) == [one]
    assert optimizers_of([one, other]) == [one, other]
    assert list(trained_parameters(model, [one, other], 1.0)) == ["weight", "bias"]


@pytest.mark.parametrize(
    ("model", "optimizer", "message"),
    [
        (
            torch.nn.Linear(2, 1),
            None,
            "the optimizer is of type NoneType; give a torch.optim.Optimizer",
        ),
        (torch.nn.Linear(2, 1), [3], "the optimizer is of type int"),
        (3, [], "the model is of type int; give a torch.nn.Module"),
        (torch.nn.LazyLinear(1), [], "'weight' is lazy and has no shape yet; run a forward pass"),
        (torch.nn.LazyBatchNorm1d(affine=False), [], "'running_mean' is lazy"),
        (
            torch.nn.Sequential(torch.nn.SyncBatchNorm(2)),
            [],
            "'0' is a SyncBatchNorm, which torch runs on GPUs",
        ),
        (torch.nn.Linear(2, 1), [], "no optimizer has a parameter of the model that requires a gradient"),
        (
            torch.nn.Linear(2, 1),
            torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), 0.1),
            "the SGD has no parameter of the model",
        ),
    ],
)
def test_what_is_no_model_and_no_optimizer_gets_one_line(model: Any, optimizer: Any, message: str) -> None:
    with pytest.raises(HocketError, match=f"^{message}"):
        trained_parameters(model, optimizers_of(optimizer), 1.0)


def test_a_device_that_is_none_of_the_processors_is_refused_and_so_are_two() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1, device="meta"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(HocketError, match=r"^'0.weight' is on cpu and '1.weight' on meta; a rank trains on"):
        trained_parameters(model, [optimizer], 1.0)
    model = torch.nn.Linear(2, 1, device="meta")
    with pytest.raises(HocketError) as caught:
        trained_parameters(model, [torch.optim.SGD(model.parameters(), 0.1)], 1.0)
    assert str(caught.value) == (
        "'weight' is on meta; distribute trains on CPUs so far, move the model there (HOCKET_UNTRIED_GPU=1"
        " has it train on CUDA devices, which no GPU has run yet)"
    )
