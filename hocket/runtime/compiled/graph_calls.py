"""Compiled graphs as they run: which parameters they were given, and when the runtime hears of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, PlainAOTInput

from hocket.errors import HocketError
from hocket.runtime.compiled.traced_graph import Code, InsertedCall, must_precede, reorder, storages, works

Parameter = torch.nn.Parameter


class GraphHooks(Protocol):
    """Hooks that compiled graphs call, from the thread that runs them."""

    def gradient(self, parameter: Parameter, gradient: torch.Tensor) -> None:
        """``gradient`` is what ``parameter.grad`` will be when the graph has run; it must not be changed."""

    def first_read(self, parameters: tuple[Parameter, ...]) -> None:
        """The forward graph is about to read ``parameters``, which may be changed in place now.

        Each graph says so once a run: where the model's forward pass is several graphs, a parameter that more
        than one of them reads comes more than once.
        """

    def gradient_order(self) -> Sequence[Parameter] | None:
        """The order in which gradients shall be completed, missing ones last; None: as traced."""


class Gradient:
    """A question of compiled backward graphs: is this the whole gradient of ``parameter``.

    That shows in the first backward pass: the gradient that autograd accumulates is the graph's very tensor.
    From then on the graph's gradient is final as soon as it is computed, except in passes that add up
    several: more than one forward graph read the parameter since the last pass, or ``grad`` holds an earlier
    gradient.

    ``is_whole``: None as long as no backward pass has shown it. ``accumulates``: whether one has reached it.
    """

    def __init__(self, name: str, parameter: Parameter) -> None:
        self.name = name
        self.parameter = parameter
        self.is_whole: bool | None = None
        self.accumulates = False
        self._num_readers = 0
        self._pass = -1
        self._alone = False
        self._was_reported = False
        self._computed_identity: tuple[int, int] | None = None
        self._handle: Any = None

    def follow(self) -> None:
        """Look at what autograd accumulates, if the parameter is trained."""
        if self._handle is None and self.parameter.requires_grad:
            self._handle = self.parameter.register_hook(self._check_accumulation)

    def forget(self) -> None:
        """Leave the parameter as it was before :meth:`follow`."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def count_reader(self) -> None:
        """A forward graph that autograd records reads the parameter."""
        self._num_readers += 1

    def skip(self) -> None:
        """A backward graph begins whose gradient of the parameter is not accumulated."""
        self._num_readers = max(self._num_readers - 1, 0)

    def enter(self) -> None:
        """A backward graph that has part in the parameter's gradient begins."""
        if self._pass == _current_pass():
            self._alone = False
            return
        self._pass, self._alone = _current_pass(), self._num_readers == 1
        self._was_reported, self._computed_identity, self._num_readers = False, None, 0

    def note_computed(self, gradient: torch.Tensor) -> bool:
        """The backward graph has computed ``gradient``; whether it is final, and so to be reported."""
        self._computed_identity = _identity(gradient)
        # Hooks behind the accumulation may change what is accumulated.
        hooked = bool(self.parameter._post_accumulate_grad_hooks)
        final = bool(self._alone and self.is_whole and self.parameter.grad is None and not hooked)
        self._was_reported |= final
        return final

    @property
    def is_reported(self) -> bool:
        """True if the gradient of the backward pass that is running was reported."""
        return self._was_reported and self._pass == _current_pass()

    def _check_accumulation(self, gradient: torch.Tensor) -> None:
        self.accumulates = True
        if self._pass != _current_pass():
            return
        # Another hook may change what this one sees.
        alone = len(self.parameter._backward_hooks or ()) == 1
        same = (
            alone and self._computed_identity is not None and self._computed_identity == _identity(gradient)
        )
        if self._was_reported and not same:
            raise HocketError(
                f"'{self.name}' got another part of its gradient after the compiled one had been sent, from"
                " code that the first step did not run (a penalty in the loss, a hook);"
                " let the first step run it, or leave compile=False"
            )
        if self._alone:
            self.is_whole = same and self.is_whole is not False


class Runner:
    """The state that graphs of a model share; ``execute`` runs one of them with its inputs.

    ``gradients``: by the identity of the parameter; ``parameters_read``: those that forward graphs have read.
    Dynamo keeps graphs for as long as the model's class lives, so they hold runner and parameters weakly. A
    forward pass is the model's, and the model holds the runner; a backward pass can be run without the model.
    """

    def __init__(
        self, hooks: GraphHooks, gradients: Iterable[Gradient], execute: Callable[[Graph, list[Any]], Any]
    ) -> None:
        self.hooks = hooks
        self.gradients = {id(gradient.parameter): gradient for gradient in gradients}
        self.execute = execute
        self.parameters_read: set[Parameter] = set()


class ForwardGraph:
    """A forward graph in the order in which it was traced.

    ``parameters``: their identities by position among Dynamo's inputs; ``trains``: whether autograd records
    the graph. ``slots``: the parameters' positions among the graph's inputs, by those among Dynamo's;
    ``bound_gradients``: the parameters of the run, by position among the graph's inputs.
    """

    def __init__(
        self,
        runner: weakref.ref[Runner],
        name: str,
        traced: fx.GraphModule,
        parameters: Mapping[int, int],
        trains: bool,
    ) -> None:
        self.name, self.traced_module, self.trains = name, traced, trains
        self.bound_gradients: dict[int, Gradient] = {}
        self._runner = runner
        nodes = list(traced.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        # AOTAutograd drops and adds inputs; its descriptors say which is which.
        self.slots = {
            desc.idx: slot
            for slot, node in enumerate(inputs)
            if isinstance(desc := node.meta.get("desc"), PlainAOTInput) and desc.idx in parameters
        }
        # Autograd has an edge for each input that is a tensor.
        tensors = [slot for slot, node in enumerate(inputs) if isinstance(node.meta["val"], torch.Tensor)]
        self.edges = {slot: edge for edge, slot in enumerate(tensors) if slot in self.slots.values()}
        self.num_edges = len(tensors)
        unread = {slot: storages([inputs[slot]]) for slot in self.slots.values()}
        before: dict[fx.Node, InsertedCall] = {}
        for node in nodes:
            # A value that is saved or returned is read, too: it may not be changed afterwards.
            if works(node) or node.op == "output":
                used = storages(node.all_input_nodes)
                if first := tuple(slot for slot, memory in unread.items() if used.keys() & memory.keys()):
                    before[node] = InsertedCall(self.first_read, first)
                    for slot in first:
                        del unread[slot]
        self.code = Code(traced, nodes, before=before)

    def bind(self, values: Sequence[Any]) -> None:
        """The next run is for ``values``, Dynamo's inputs."""
        # By identity in every run: Dynamo takes one graph for modules that differ in their parameters only.
        runner = self._live_runner()
        known = runner.gradients
        ids = {slot: id(values[index]) for index, slot in self.slots.items()}
        self.bound_gradients = {slot: known[key] for slot, key in ids.items() if key in known}
        runner.parameters_read.update(gradient.parameter for gradient in self.bound_gradients.values())
        if self.trains:
            for gradient in self.bound_gradients.values():
                gradient.count_reader()

    def run(self, inputs: list[Any]) -> Any:
        """Run with boxed inputs."""
        try:
            return self._live_runner().execute(self, inputs)
        finally:
            self.bound_gradients = {}

    def first_read(self, slots: tuple[int, ...]) -> None:
        """Called by the graph before the first node that reads any of ``slots``."""
        if parameters := tuple(
            self.bound_gradients[slot].parameter for slot in slots if slot in self.bound_gradients
        ):
            self._live_runner().hooks.first_read(parameters)

    def _live_runner(self) -> Runner:
        runner = self._runner()
        assert runner is not None
        return runner


class BackwardGraph:
    """The backward graph of ``forward``, in the order in which the runtime wants gradients.

    ``bound_gradients``: the parameters whose gradients the run has part in, by position among the inputs of
    ``forward``; ``completes``: such positions by the nodes that complete the gradients.
    """

    def __init__(
        self,
        runner: weakref.ref[Runner],
        name: str,
        traced: fx.GraphModule,
        parameters: Mapping[int, int],
        forward: ForwardGraph,
    ) -> None:
        self.name, self.traced_module, self.forward = name, traced, forward
        self.bound_gradients: dict[int, Gradient] = {}
        self.completes: dict[fx.Node, list[int]] = {}
        self._runner = runner
        self._node_of: dict[int, fx.Node] = {}
        self._before = must_precede(traced.graph)
        (output,) = traced.graph.find_nodes(op="output")
        for value, desc in zip(output.args[0], output.meta["desc"], strict=True):
            if isinstance(desc, GradAOTOutput) and isinstance(desc.grad_of, PlainAOTInput):
                parameter = parameters.get(desc.grad_of.idx)
                if parameter is not None and isinstance(value, fx.Node):
                    self._node_of[parameter] = value
                    self.completes.setdefault(value, []).append(forward.slots[desc.grad_of.idx])
        self.arrange()

    def arrange(self) -> None:
        """Bring the nodes into the order in which the runtime wants gradients."""
        runner = self._runner()
        wanted = None if runner is None else runner.hooks.gradient_order()
        order = list(self.traced_module.graph.nodes)
        if wanted is not None:
            nodes = [self._node_of[id(parameter)] for parameter in wanted if id(parameter) in self._node_of]
            order = reorder(self.traced_module.graph, self._before, nodes)
        after = {
            node: [InsertedCall(self.gradient, slot) for slot in slots]
            for node, slots in self.completes.items()
        }
        self.code = Code(self.traced_module, order, after=after)

    def run(self, inputs: list[Any]) -> Any:
        """Run with boxed inputs, from autograd's engine."""
        runner = self._runner()
        if runner is None:
            return self.code.run(inputs)
        for slot, edge in self._edges():
            gradient = runner.gradients.get(id(getattr(edge, "variable", None)))
            if gradient is not None and _runs(edge):
                gradient.enter()
                self.bound_gradients[slot] = gradient
            elif gradient is not None:
                gradient.skip()
        try:
            return runner.execute(self, inputs)
        finally:
            self.bound_gradients = {}

    def _edges(self) -> list[tuple[int, Any]]:
        """The slots and the autograd nodes that take their gradients."""
        node = torch._C._current_autograd_node()
        if node is None or len(node.next_functions) != self.forward.num_edges:
            return []
        functions = node.next_functions
        return [(slot, functions[edge][0]) for slot, edge in self.forward.edges.items()]

    def gradient(self, slot: int, gradient: torch.Tensor) -> None:
        """Called by the graph when it has computed the gradient of ``slot``."""
        known, runner = self.bound_gradients.get(slot), self._runner()
        if known is not None and runner is not None and known.note_computed(gradient):
            runner.hooks.gradient(known.parameter, gradient)


Graph = ForwardGraph | BackwardGraph


def _runs(node: Any) -> bool:
    """True if the backward pass that is running accumulates at ``node``, a parameter's."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return False  # torch.autograd.grad returns this gradient and accumulates nothing


def _identity(tensor: torch.Tensor) -> tuple[int, int] | None:
    if tensor.layout is not torch.strided:
        return None  # a sparse one leaves when autograd has accumulated it
    return tensor.data_ptr(), tensor._version


def _current_pass() -> int:
    """A number for the backward pass that this thread runs, -1 outside of one."""
    return int(torch._C._current_graph_task_id())
