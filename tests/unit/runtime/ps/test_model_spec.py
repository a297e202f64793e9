"""What a server is told of an optimizer: plain numbers, whatever has computed them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from hocket.errors import HocketError
from hocket.runtime.ps.wire.model_spec import settings_of, torch_settings


def optimizer_with(**changes: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    optimizer.param_groups[0].update(changes)
    return optimizer


@pytest.mark.parametrize(
    "rate", [np.float64(0.1) / 3, np.float32(0.3), np.int64(2), torch.tensor(0.25), 0.1, 1], ids=repr
)
def test_rates_that_schedules_compute_travel_as_they_are(rate: Any) -> None:
    optimizer = optimizer_with(lr=rate, betas=(np.float64(0.8), 0.99))
    (told,) = msgspec.json.decode(msgspec.json.encode(settings_of(optimizer)))
    assert told["lr"] == float(rate)
    assert torch_settings(told)["betas"] == (0.8, 0.99)


def test_a_schedule_of_numpys_may_be_given() -> None:
    optimizer = optimizer_with()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step / 10))
    optimizer.step()
    schedule.step()
    (told,) = msgspec.json.decode(msgspec.json.encode(settings_of(optimizer)))
    assert told["lr"] == 0.1 * float(np.cos(0.1))


@pytest.mark.parametrize("rate", [float("nan"), np.float64("inf"), object()])
def test_what_is_no_number_is_refused(rate: Any) -> None:
    with pytest.raises(HocketError, match=r"the optimizer's 'lr' is .*; servers take finite numbers"):
        settings_of(optimizer_with(lr=rate))
