"""Readers that nobody notices: where there may be some, updates run within the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from hocket.runtime.lazy.aliases import is_held, is_state_held
from hocket.runtime.lazy.extensions import torch_extensions
from hocket.runtime.lazy.parameter import StaleParameter
from hocket.runtime.transfers.buckets import Bucket

Parameter = torch.nn.Parameter


class UnnoticedReaders:
    """The ways in which one model's parameters may be read unnoticed.

    ``blind_parameters``: those that a user compiled, and those of classes of their own; ``user_compiles``:
    whether the user has functions compiled outside of the model.
    """

    def __init__(self, blind_parameters: Iterable[Parameter]) -> None:
        self.blind_parameters = set(blind_parameters)
        self.user_compiles = False

    def of_everything(self) -> str:
        """The reason that every parameter may be read unnoticed; empty: there is none."""
        if names := torch_extensions():
            return (
                f"extensions built on torch may read parameters that they are handed: {', '.join(names)} is"
                " loaded"
            )
        if self.user_compiles:
            return "functions that a user compiled run outside of the model and may read any parameter"
        return ""

    def of_bucket(self, bucket: Bucket, optimizer: torch.optim.Optimizer) -> tuple[str, list[str]]:
        """The reason that parameters of ``bucket`` or their state may be read unnoticed, and their names."""
        known = self.blind_parameters
        blind = [name for name, p in _named_parameters(bucket) if p in known] if known else []
        if blind:
            return "parameters that a user compiled, or of classes of their own", blind
        # Those that still wait were looked at when they began to.
        here = [(name, p) for name, p in _named_parameters(bucket) if type(p) is not StaleParameter]
        if held := [name for name, p in here if is_held(p)]:
            return "parameters whose memory the script, or a graph it keeps, holds by other names", held
        if held := [name for name, p in here if is_state_held(optimizer, p)]:
            return "the optimizer's state, which the script holds by other names", held
        return "", []


def _named_parameters(bucket: Bucket) -> Iterable[tuple[str, Parameter]]:
    return zip(bucket.names, bucket.parameters, strict=True)
