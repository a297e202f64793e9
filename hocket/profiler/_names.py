"""Names of operations: the place in the model that each comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class Paths:
    """The module whose forward runs now, and in the backward pass the module whose gradient is computed.

    Autograd numbers its nodes in the order in which forward operations create them; the number of the node
    that runs in the backward pass leads back to the module that created it. Global module hooks are used, not
    hooks on the modules, because torch leaves its fused inference paths when it finds the latter.
    """

    def __init__(self, roots: dict[str, nn.Module], parameters: dict[str, nn.Parameter]) -> None:
        self._name_of_parameter = {id(parameter): name for name, parameter in parameters.items()}
        self._path_of_module: dict[int, str] = {}
        for prefix, root in roots.items():
            for name, module in root.named_modules(prefix=prefix):
                self._path_of_module.setdefault(id(module), name)
        self._stack: list[str | None] = []  # None: no module of ours
        self._path_of_node: dict[int, str] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow every module's forward."""

        def push(module: nn.Module, _args: Any) -> None:
            around = self._stack[-1] if self._stack else None
            self._stack.append(self._path_of_module.get(id(module), around))

        def pop(_module: nn.Module, _args: Any, _outputs: Any) -> None:
            if self._stack:  # a module that was called before this began
                self._stack.pop()

        handles = register_module_forward_pre_hook(push), register_module_forward_hook(pop, always_call=True)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def current(self, default: str) -> str:
        """The path of the operation that is being dispatched; ``default`` where it belongs to no module.

        A gradient's accumulation has its parameter's name for a path.
        """
        node: Any = torch._C._current_autograd_node()
        if node is not None and not self._stack:
            if hasattr(node, "variable"):  # AccumulateGrad
                return self._name_of_parameter.get(id(node.variable), default)
            return self._path_of_node.get(node._sequence_nr(), default)
        # Forward, or a checkpoint that recomputes its forward in the backward pass.
        inside = self._stack[-1] if self._stack else None
        path = default if inside is None else inside
        newest_node = torch._C._autograd._get_sequence_nr() - 1
        self._path_of_node.setdefault(newest_node, path)
        return path
