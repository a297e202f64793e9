"""Parameters and buffers that a script keeps each rank's own, named as DistributedDataParallel has it."""

from __future__ import annotations

from collections.abc import Collection

import torch


def ignored_names(model: torch.nn.Module) -> frozenset[str]:
    """The names that ``DistributedDataParallel._set_params_and_buffers_to_ignore_for_model`` has left."""
    return frozenset(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))


def is_ignored(module: str, name: str, ignored: Collection[str]) -> bool:
    """Tell whether ``name`` of ``module`` is among ``ignored``, where the model's own may begin by a dot."""
    return f"{module}.{name}" in ignored or (not module and name in ignored)


def kept_alike(model: torch.nn.Module) -> tuple[dict[str, torch.nn.Parameter], dict[str, torch.Tensor]]:
    """The parameters and the buffers of ``model``, by name, that are not ignored by all of their names."""
    ignored, alike = ignored_names(model), set()
    for prefix, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if not is_ignored(prefix, name, ignored):
                alike.add(id(tensor))
    return (
        {name: p for name, p in model.named_parameters() if id(p) in alike},
        {name: buffer for name, buffer in model.named_buffers() if id(buffer) in alike},
    )
