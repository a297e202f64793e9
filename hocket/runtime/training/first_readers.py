"""The first module to read each parameter: its forward pass has to wait for the parameter's update.

Most parameters are read by the module that owns them. Some are not (``nn.MultiheadAttention`` hands
``out_proj.weight`` to a function, tied weights, parametrisations): the innermost module that runs when a
parameter is first seen is noted while the first steps run, and waits for it from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

Parameters = tuple[torch.nn.Parameter, ...]


class FirstReaders:
    """Calls ``first_read(module name, parameters)`` before each module of ``model`` that reads some.

    ``watched_parameters``: those that matter; ``announced_parameters``: those that hooks have announced. In a
    ``with readers.noting():`` block functional reads are noted.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        watched_parameters: Sequence[torch.nn.Parameter],
        first_read: Callable[[str, Parameters], None],
    ) -> None:
        self._model = model
        self._first_read = first_read
        self._watched_parameters = set(watched_parameters)
        self._names = {module: name for name, module in model.named_modules()}
        self.announced_parameters: set[torch.nn.Parameter] = set()
        self._running: list[torch.nn.Module] = []
        self._reads: dict[torch.nn.Module, Parameters] = {
            module: tuple(
                dict.fromkeys(p for p in module.parameters(recurse=False) if p in self._watched_parameters)
            )
            for module in self._names
        }
        self._handles = [
            handle
            for module in self._names
            for handle in (
                module.register_forward_pre_hook(Hook(self._enter), prepend=True),
                module.register_forward_hook(Hook(self._leave), always_call=True),
            )
        ]

    def detach(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()

    def noting(self) -> TorchFunctionMode:
        """A context in which reads outside of the owning module are noted."""
        return _Noting(self._note)

    def keep_needed_hooks(self) -> None:
        """Keep hooks only where they are needed: the first steps have shown who reads what."""
        self.detach()
        self._running.clear()
        self._handles = [
            # The model's own comes behind the one that begins a step.
            module.register_forward_pre_hook(Hook(self._enter_only), prepend=module is not self._model)
            for module, reads in self._reads.items()
            if reads
        ]

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        self._running.append(module)
        self._enter_only(module, None)

    def _enter_only(self, module: torch.nn.Module, _: Any) -> None:
        if reads := self._reads[module]:
            self.announced_parameters.update(reads)
            self._first_read(self._names[module], reads)

    def _leave(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if self._running and self._running[-1] is module:
            self._running.pop()

    def _note(self, parameter: torch.nn.Parameter) -> None:
        if parameter in self._watched_parameters and self._running:
            module = self._running[-1]
            self._reads[module] = tuple(dict.fromkeys((*self._reads[module], parameter)))


def compiled_by_user(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """The parameters of modules within ``model`` whose calls Dynamo may trace."""
    return {
        p
        for module in model.modules()
        if getattr(module, "_compiled_call_impl", None) is not None
        or type(module).__name__ == "OptimizedModule"  # its own module imports the compiler
        for p in module.parameters()
    }


_NO_FULL_GRAPH = (
    "the passes of a model that is distributed begin and end in Python: leave fullgraph=True out, or compile"
    " copy.deepcopy(model) where it is not to be trained"
)


class Hook:
    """A hook of one model's training: a copy of the model, or what is read from a pickle, has none.

    ``always``: also where Dynamo traces a call of the model, which then begins behind the hook.
    """

    def __init__(self, call: Callable[..., Any], *, always: bool = False) -> None:
        self._call = torch.compiler.disable(call, reason=_NO_FULL_GRAPH) if always else call
        self._always = always

    def __call__(self, *args: Any) -> Any:  # noqa: D102
        if torch.compiler.is_exporting():
            return None  # what is exported trains nothing
        # A call that Dynamo traces is compiled without us; one that it leaves to Python comes here again.
        return self._call(*args) if self._always or not torch.compiler.is_compiling() else None

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return no_hook

    def __reduce__(self) -> str:
        return "no_hook"


def no_hook(*_: Any) -> None:
    """Do nothing: what hooks are in copies."""


class _Noting(TorchFunctionMode):
    def __init__(self, note: Callable[[torch.nn.Parameter], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for value in tree_iter((args, kwargs)):
            if isinstance(value, torch.nn.Parameter):
                self._note(value)
        return func(*args, **(kwargs or {}))
