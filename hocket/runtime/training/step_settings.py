"""Settings of how a training's steps run and what travels of them."""

from __future__ import annotations

from typing import NamedTuple

import torch


class StepSettings(NamedTuple):
    """Settings of steps, the same on all ranks.

    Attributes
    ----------
    compile : the step runs through torch.compile.
    gradient_dtype : the type in which longer gradients travel; None: all as they are.
    """

    compile: bool = False
    gradient_dtype: torch.dtype | None = None
