"""Models of the training suite's cases on a device, whose scripts make batches and losses on processors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

DEVICES: list[torch.device] = []
"""The one that cases train on, where there is one."""


def device() -> torch.device:
    """The device that cases are to be on: a GPU, or the processor."""
    return DEVICES[0] if DEVICES else torch.device("cpu")


def placed(model: nn.Module) -> nn.Module:
    """``model`` on the device that is in force; its inputs go there, and its outputs come back."""
    if not DEVICES:
        return model
    (device,) = DEVICES

    def to_device(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda t: t.to(device), (args, kwargs))

    def to_host(_: nn.Module, __: Any, output: Any) -> Any:
        return tree_map_only(torch.Tensor, torch.Tensor.cpu, output)

    model.to(device)
    model.register_forward_pre_hook(to_device, with_kwargs=True)
    model.register_forward_hook(to_host)
    return model
