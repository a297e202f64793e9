"""``torch.compile`` for models whose gradients travel: the compiled graphs themselves call the runtime.

Hooks of submodules are traced away and gradient hooks fire when a whole backward graph has run. So each graph
is run operator by operator, as AOTAutograd traced it (no fusion, no change of a bit), with calls in between:
before the first reader of a parameter, and after the operator that completes a gradient. The nodes of
backward graphs are put into the order in which the plan wants gradients (Caramel section 4.1).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hocket.graph import StepRows
from hocket.runtime.compiled.compiled_profile import Recording
from hocket.runtime.compiled.graph_calls import (
    BackwardGraph,
    ForwardGraph,
    Gradient,
    Graph,
    GraphHooks,
    Parameter,
    Runner,
)
from hocket.runtime.compiled.traced_graph import memory


def compile_model(model: torch.nn.Module, hooks: GraphHooks, *, dynamic: bool | None = False) -> CompiledStep:
    """Have ``model.forward`` compiled; ``model`` stays the module that it is, its own hooks are not compiled.

    ``dynamic``: as of ``torch.compile``. Losses, gradients and buffers are bitwise those of the eager model,
    but for dropout with a probability p for which 1 / (1 - p) rounds differently (its draws are the same) and
    for the kernel that ``nn.MultiheadAttention`` has for evaluation alone. A parameter on which only outputs
    depend that the loss does not use has a gradient of zeros where the eager model has none.
    """
    return CompiledStep(model, hooks, dynamic)


class CompiledStep:
    """A model whose forward pass is compiled, made by :func:`compile_model`."""

    def __init__(self, model: torch.nn.Module, hooks: GraphHooks, dynamic: bool | None) -> None:
        self._model = model
        self._gradients = {p: Gradient(name, p) for name, p in model.named_parameters()}
        self._runner = Runner(hooks, self._gradients.values(), self._execute)
        self._eager_reads = _EagerReads(self._gradients)
        self._num_graphs = 0
        self._num_watched: int | None = None
        self._backwards: list[BackwardGraph] = []
        self._recording = Recording()
        self._is_recording = False
        self._plain_forward = vars(model).get("forward")
        this = weakref.ref(self)

        def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            step = this()
            assert step is not None, "only the model's forward pass compiles, and it holds the step"
            return step._backend(module, inputs)

        self._compiled_forward = torch.compile(model.forward, backend=backend, dynamic=dynamic)
        vars(model)["forward"] = _Forward(self._run, model)

    @property
    def covered_parameters(self) -> frozenset[Parameter]:
        """Parameters whose gradients the backward graphs report: known once a backward pass has run.

        A pass that adds up several gradients of one reports none of it: :meth:`is_reported` tells.
        """
        return frozenset(p for p, gradient in self._gradients.items() if gradient.is_whole)

    @property
    def awaited_parameters(self) -> frozenset[Parameter]:
        """Parameters that graphs alone read, after ``first_read``: known after the second forward pass."""
        return frozenset(
            self._runner.parameters_read - self._eager_reads.parameters_read if self._num_watched else ()
        )

    def is_reported(self, parameter: Parameter) -> bool:
        """True if ``gradient`` was called for ``parameter`` in the backward pass that is running now.

        Then what is accumulated is that gradient alone.
        """
        return self._gradients[parameter].is_reported

    def recompile(self) -> None:
        """Put the backward graphs into the present order of gradients. Nothing is traced again."""
        for graph in self._backwards:
            graph.arrange()

    def record(self, on: bool) -> None:
        """Begin a recording in place of the last one, or end it. Meanwhile an interpreter times each node."""
        if on:
            self._recording = Recording()
        self._is_recording = on

    def step_rows(self, model_name: str, batch_size: int) -> StepRows:
        """The steps of the last recording: their graphs' operators, named by graph and node ("b0.mm_3").

        An operation "b0.eager" is what ran between the graph before and this one, such as the loss. Updates
        are not recorded. Parameters that eager code reads are read at the step's first operation, and
        gradients that eager code completes are produced at its last, which is when they can be relied upon.

        Raises
        ------
        HocketError
            When no step with a backward graph was recorded.
        """
        read = frozenset(self._gradients[p].name for p in self._eager_reads.parameters_read)
        return self._recording.rows(self._gradients.values(), read, model_name, batch_size)

    def undo(self) -> None:
        """Restore the model's forward pass as it was."""
        if self._plain_forward is None:
            del vars(self._model)["forward"]
        else:
            vars(self._model)["forward"] = self._plain_forward
        for gradient in self._gradients.values():
            gradient.forget()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._num_watched == self._num_graphs:
            return self._compiled_forward(*args, **kwargs)
        # Of the passes watched, the last compiles nothing: it runs as later ones will.
        num_graphs = self._num_graphs
        with self._eager_reads:
            outputs = self._compiled_forward(*args, **kwargs)
        self._num_watched = num_graphs
        return outputs

    def _execute(self, graph: Graph, inputs: list[Any]) -> Any:
        self._eager_reads.inside = True
        try:
            return self._recording.run(graph, inputs) if self._is_recording else graph.code.run(inputs)
        finally:
            self._eager_reads.inside = False

    def _backend(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile what Dynamo has traced; parameters are among ``inputs``."""
        for gradient in self._gradients.values():
            gradient.follow()
        known = self._runner.gradients
        parameters = {i: id(value) for i, value in enumerate(inputs) if id(value) in known}
        index, forwards, backwards = self._num_graphs, list[ForwardGraph](), self._backwards
        self._num_graphs += 1
        runner = weakref.ref(self._runner)

        def forward(traced: fx.GraphModule, _: Any, trains: bool) -> Callable[..., Any]:
            context = TracingContext.try_get()
            if context is not None and context.fw_metadata is not None:
                # No graph writes into what autograd saved for it: a backward pass can be repeated.
                context.fw_metadata.bw_donated_idxs = []
            forwards.append(ForwardGraph(runner, f"f{index}", traced, parameters, trains))
            return _box(forwards[0].run)

        def backward(traced: fx.GraphModule, _: Any) -> Callable[..., Any]:
            backwards.append(BackwardGraph(runner, f"b{index}", traced, parameters, forwards[0]))
            return _box(backwards[-1].run)

        # Eager models go back without autocast, too.
        with functorch_config.patch(backward_pass_autocast="off"):
            compiled: Callable[..., Any] = aot_autograd(
                fw_compiler=functools.partial(forward, trains=True),
                inference_compiler=functools.partial(forward, trains=False),
                bw_compiler=backward,
                partition_fn=default_partition,
            )(module, inputs)

        def run(*values: Any) -> Any:
            forwards[0].bind(values)
            return compiled(*values)

        # Else Dynamo would trace it.
        disabled: Callable[..., Any] = torch.compiler.disable(run)
        return disabled


class _Forward:
    """The compiled forward pass of one model; copies and pickles of the model have the plain one."""

    def __init__(self, run: Callable[..., Any], model: torch.nn.Module) -> None:
        functools.update_wrapper(self, model.forward)
        self._run = run
        self._model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._model, "forward")


class _EagerReads(TorchDispatchMode):
    """Notes which of ``parameters`` are read by operators that run while not ``inside`` a graph."""

    supports_higher_order_operators = True

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        super().__init__()
        self.parameters_read: set[Parameter] = set()
        self.inside = False
        self._parameters = tuple(parameters)
        self._by_memory: dict[int, list[Parameter]] = {}

    def __enter__(self) -> _EagerReads:
        self._by_memory = {}
        for parameter in self._parameters:
            self._by_memory.setdefault(memory(parameter), []).append(parameter)
        super().__enter__()
        return self

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True if what runs under this mode is compiled all the same."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self.inside and not getattr(func, "is_view", False):
            for value in tree_leaves((args, kwargs)):
                if isinstance(value, torch.Tensor):
                    self.parameters_read.update(self._by_memory.get(memory(value), ()))
        return func(*args, **(kwargs or {}))


def _box(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``run`` as AOTAutograd calls what takes a list of inputs and empties it."""

    def boxed(inputs: list[Any]) -> Any:
        return run(inputs)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed
