"""One step's structure: its operations, what they depend on, which parameters they read and produce."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from hocket.graph import Phase
from hocket.graph.unique_names import UniqueNames
from hocket.profiler._memory import Extent, Memory
from hocket.profiler._names import Paths
from hocket.profiler._operators import accesses, does_work, extents, ignores_values, short_name, tensors

OnOperation = Callable[[OpOverload, tuple[Any, ...], dict[str, Any], Any], None]
"""Called for each operation with its operator, arguments and result."""


@dataclass
class RecordedOperation:
    """One dispatched operator that does work; ``inputs`` are indices of earlier operations."""

    name: str
    phase: Phase
    inputs: list[int]
    reads: list[int]
    produces: list[int] = field(default_factory=list)


class StepRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the step that runs inside ``with recorder.recording():``.

    An operator is an operation when it gives new memory a value, writes memory, or hands a value to Python
    (``item``). Views, allocations without a value and profiler marks are calls, but no operations: what they
    pass on is seen through, because their results share storage with their arguments.

    Whatever follows an operation that hands a value to Python may depend on that value, so it comes after it.
    One that takes nothing of the others, as dropout's masks do, comes after the one before it: a program that
    waits there for a parameter has not come to it.

    Parameters
    ----------
    parameters
        By name; their order is that of the indices in ``reads`` and ``produces``.
    roots
        The modules whose submodules name the operations, by the prefix of their paths.
    on_operation
        Called for each operation, in their order.
    """

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        roots: dict[str, nn.Module],
        on_operation: OnOperation | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[RecordedOperation] = []
        self.calls: list[OpOverload] = []
        """Every operator dispatched, in order."""
        self.call_of_operation: list[int] = []
        self._parameters = parameters
        self._on_operation = on_operation
        self._paths = Paths(roots, parameters)
        self._names = UniqueNames()
        self._memory = Memory()
        self._phase, self._path = Phase.FORWARD, ""
        self._last_handed_to_python = -1
        self._last_computed: int | None = None
        self.unmade: list[str] = []
        """Parameters whose gradients are complete before any operation of the backward pass is seen."""
        self._produced_by: dict[int, int] = {}
        self._extents_of_parameters: dict[Any, list[tuple[Extent, int]]] = {}
        self._owners: dict[Any, str] = {}
        for index, (name, parameter) in enumerate(parameters.items()):
            for extent in extents(parameter):
                self._extents_of_parameters.setdefault(extent.key, []).append((extent, index))
                self._owners[extent.key] = name

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs inside; on leaving, ``operations`` is complete."""
        with self.following(), self:
            yield

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow modules and gradients inside, for where the mode is on; to be entered outside modules."""
        handles = [
            parameter.register_post_accumulate_grad_hook(self._gradient_hook(index))  # type: ignore[no-untyped-call]
            for index, parameter in enumerate(self._parameters.values())
            if parameter.requires_grad
        ]
        try:
            with self._paths.following():
                yield
        finally:
            for handle in handles:
                handle.remove()
        for parameter_index, operation_index in self._produced_by.items():
            self.operations[operation_index].produces.append(parameter_index)

    def enter(self, phase: Phase, path: str = "") -> None:
        """Say what comes next; ``path`` names operations outside every module."""
        self._phase, self._path = phase, path

    def own(self, tensors: dict[str, list[Tensor]]) -> None:
        """Let update operations on these tensors, an optimizer's state, go by the parameter's name."""
        for name, owned in tensors.items():
            self._owners.update({extent.key: name for tensor in owned for extent in extents(tensor)})

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operator, then note what it did."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._note(func, args, kwargs, result)
        return result

    def _note(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.calls.append(func)
        path = self._paths.current(self._path)
        read, written = accesses(func, args, kwargs)
        known = {extent.key for extent in (*read, *written)}
        results = [extent for tensor in tensors(result) for extent in extents(tensor)]
        fresh = [extent for extent in results if extent.key not in known]
        if not self._is_the_steps():
            self._pass_on(read, (*written, *fresh))
        elif does_work(func, bool(read), bool(written), bool(fresh), bool(results)):
            self._add(func, path, read, written, fresh)
            if self._on_operation is not None:
                self._on_operation(func, args, kwargs, result)
            if not results and not written:
                self._last_handed_to_python = len(self.operations) - 1

    def _is_the_steps(self) -> bool:
        """True if the operator that was just run belongs to the step."""
        return True

    def _pass_on(self, read: list[Extent], written: Sequence[Extent]) -> None:
        """See through a copy that is no operation: what was copied was written by who wrote the original."""
        writers = {self._memory.last_writer(extent) for extent in read} - {None}
        for extent in written if writers else ():
            self._memory.write(max(writer for writer in writers if writer is not None), extent)

    def _add(
        self, func: OpOverload, path: str, read: list[Extent], written: list[Extent], fresh: list[Extent]
    ) -> None:
        index = len(self.operations)
        touched = dict.fromkeys((*(() if ignores_values(func) else read), *written))
        inputs: set[int] = set()
        for extent in touched:
            inputs |= self._memory.read(index, extent)
        for extent in (*written, *fresh):
            inputs |= self._memory.write(index, extent)
        if self._last_handed_to_python > max(inputs, default=-1):
            inputs.add(self._last_handed_to_python)
        if self._phase is not Phase.UPDATE:
            if not inputs and self._last_computed is not None:
                inputs.add(self._last_computed)
            self._last_computed = index
        reads = {
            parameter
            for extent in touched
            for other, parameter in self._extents_of_parameters.get(extent.key, ())
            if extent.overlaps(other.begin, other.end)
        }
        if self._phase is Phase.UPDATE and not path:
            path = self._owner((*read, *written), fresh)
        name = "/".join(part for part in (self._phase.name.lower(), path, short_name(func)) if part)
        self.operations.append(
            RecordedOperation(self._names.take(name), self._phase, sorted(inputs), sorted(reads))
        )
        self.call_of_operation.append(len(self.calls) - 1)

    def _owner(self, touched: tuple[Extent, ...], fresh: list[Extent]) -> str:
        owners = {self._owners.get(extent.key, "") for extent in touched} - {""}
        if len(owners) != 1:
            return ""
        owner = owners.pop()
        self._owners.update({extent.key: owner for extent in fresh})
        return owner

    def _gradient_hook(self, index: int) -> Callable[[Tensor], None]:
        name = list(self._parameters)[index]

        def complete(parameter: Tensor) -> None:
            last = len(self.operations) - 1
            if parameter.grad is not None:
                with _disable_current_modes():
                    gradient = list(extents(parameter.grad))
                for extent in gradient:
                    # Gradients may share a buffer, which goes by no name then.
                    before = self._owners.get(extent.key, name)
                    self._owners[extent.key] = name if before == name else ""
                writers = [self._memory.last_writer(extent) for extent in gradient]
                last = max((writer for writer in writers if writer is not None), default=last)
                is_unwritten = all(writer is None for writer in writers)
                if is_unwritten and self.operations[last].phase is not Phase.BACKWARD:
                    self.unmade.append(name)
            self._produced_by[index] = last

        return complete
