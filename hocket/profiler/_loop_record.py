"""The structure of a step that a training script runs: recorded without disturbing it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload

from hocket.graph import Phase
from hocket.profiler._record import StepRecorder


class LoopRecorder(StepRecorder):  # type: ignore[no-untyped-call]
    """Records the step within which it is entered and left; to be made outside every module's call.

    An error in recording is kept in ``failure``, and the step goes on unrecorded.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], model: nn.Module) -> None:
        super().__init__(parameters, {"": model})
        self.failure: Exception | None = None
        self._is_paused = False
        self._complete: set[int] = set()
        self._following = ExitStack()
        self._following.enter_context(self.following())

    def __exit__(self, *exception: Any) -> None:
        """End recording; ``operations`` is complete."""
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self.close()

    def close(self) -> None:
        """Follow modules and gradients no longer."""
        self._following.close()

    def enter(self, phase: Phase, path: str = "") -> None:
        """Say what comes next; in every backward pass gradients are to be completed anew."""
        super().enter(phase, path)
        if phase is Phase.BACKWARD:
            self._complete.clear()

    def pause(self) -> None:
        """Leave out what is run until :meth:`resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on recording."""
        self._is_paused = False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, then note what it did."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self._is_paused and self.failure is None:
            try:
                self._note(func, args, kwargs, result)
            except Exception as error:
                self.failure = error
        return result

    def _is_the_steps(self) -> bool:
        # DistributedDataParallel copies a gradient into its buckets as soon as it is complete.
        node: Any = torch._C._current_autograd_node()
        return not (hasattr(node, "variable") and id(node.variable) in self._complete)

    def _gradient_hook(self, index: int) -> Callable[[Tensor], None]:
        complete = super()._gradient_hook(index)

        def noted(parameter: Tensor) -> None:
            self._complete.add(id(parameter))
            if not self._is_paused and self.failure is None:
                try:
                    complete(parameter)
                except Exception as error:
                    self.failure = error

        return noted
