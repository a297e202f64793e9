"""Traced graphs: what must run before what, nodes in another order, and calls between them.

A graph is one that AOTAutograd traced: operators on tensors, functional but for writes into inputs at its
end. Its nodes carry the tensors of the trace in ``meta["val"]``, whose storages show what shares memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx.graph import _BoxedCodeGen
from torch.utils._pytree import tree_leaves

Before = dict[fx.Node, tuple[fx.Node, ...]]


class InsertedCall(NamedTuple):
    """A call of ``function`` with ``slot`` (and, after a node, with the node's value)."""

    function: Callable[..., None]
    slot: Any


def storages(nodes: Iterable[fx.Node]) -> dict[int, None]:
    """The memory that values of ``nodes`` lie in, as keys that are equal for what shares memory."""
    values = (value for node in nodes for value in tree_leaves(node.meta.get("val")))
    return dict.fromkeys(memory(value) for value in values if isinstance(value, torch.Tensor))


def memory(tensor: torch.Tensor) -> int:
    """A key of the memory that ``tensor`` lies in, valid for as long as the tensor lives."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else id(tensor)


def works(node: fx.Node) -> bool:
    """True if ``node`` computes: views, parts of results, sizes and bare allocations do not."""
    if node.op != "call_function" or _is_allocation(node.target):
        return False
    return _has_effect(node) or bool(storages([node]).keys() - storages(node.all_input_nodes).keys())


def must_precede(graph: fx.Graph) -> Before:
    """For each node the nodes that have to run before it: its inputs, and what effects order.

    A node that writes memory comes after all that used the memory before, and before everything that uses it
    later. Nodes with any effect (writes, random numbers, anything that an operator with graphs of its own
    does) keep their order.
    """
    before: Before = {}
    last_writer: dict[int, fx.Node] = {}
    users: dict[int, list[fx.Node]] = {}
    last_effect: fx.Node | None = None
    for node in graph.nodes:
        needed = dict.fromkeys(node.all_input_nodes)
        if works(node):
            read, written = storages(node.all_input_nodes), storages(_written_nodes(node))
            needed |= dict.fromkeys(last_writer[key] for key in read if key in last_writer)
            for key in written:
                needed |= dict.fromkeys(users.get(key, ()))
                last_writer[key], users[key] = node, []
            for key in read:
                users.setdefault(key, []).append(node)
            if _has_effect(node) and last_effect is not None:
                needed[last_effect] = None
        if _has_effect(node):
            last_effect = node
        before[node] = tuple(needed)
    return before


def reorder(graph: fx.Graph, before: Before, targets: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes of ``graph`` with those of ``targets`` one after the other, each as early as can be.

    Source: Caramel section 4.1. Each of ``targets`` is preceded by what it needs and what has not run yet, in
    the traced order; what none of them needs comes last.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    order: dict[fx.Node, None] = {node: None for node in graph.nodes if node.op == "placeholder"}
    for node in targets:
        missing: set[fx.Node] = set()
        found = [node]
        while found:
            if (needed := found.pop()) not in order and needed not in missing:
                missing.add(needed)
                found += before[needed]
        order |= dict.fromkeys(sorted(missing, key=position.__getitem__))
    order |= dict.fromkeys(graph.nodes)
    return list(order)


class Code:
    """The nodes of ``order``, copied from ``module``, with calls ``before`` and ``after`` some of them.

    It is called with a list of inputs, which it empties so that each lives for as long as it is used.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        order: Sequence[fx.Node],
        before: Mapping[fx.Node, InsertedCall] | None = None,
        after: Mapping[fx.Node, Sequence[InsertedCall]] | None = None,
    ) -> None:
        before, after = before or {}, after or {}
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.set_codegen(_BoxedCodeGen())
        # A call can come after the last of the inputs at the earliest.
        num_inputs = sum(node.op == "placeholder" for node in order)
        waiting: list[tuple[InsertedCall, fx.Node]] = []
        for i, node in enumerate(order):
            if node in before:
                _insert(graph, before[node])
            copies[node] = graph.node_copy(node, copies.__getitem__)
            assert copies[node].name == node.name, "durations are found by the traced node's name"
            waiting += [(call, copies[node]) for call in after.get(node, ())]
            if i + 1 >= num_inputs:
                for call, value in waiting:
                    _insert(graph, call, value)
                waiting.clear()
        graph.lint()
        self._module = fx.GraphModule(module, graph)
        self.run: Callable[[list[Any]], Any] = self._module.forward
        """Run with boxed inputs."""

    def run_timed(self, inputs: list[Any]) -> tuple[Any, dict[str, float]]:
        """Run, and say how many seconds each call took, by the node's name."""
        timer = _Timer(self._module)
        outputs = timer.boxed_run(inputs)
        return outputs, timer.durations_s


class _Timer(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        # An error of the runtime's is one line, with nothing about graphs.
        self.extra_traceback = False
        self.durations_s: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        assert callable(n.target)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        begin_s = time.perf_counter()
        result = n.target(*args, **kwargs)
        self.durations_s[n.name] = time.perf_counter() - begin_s
        return result


def _insert(graph: fx.Graph, call: InsertedCall, *values: fx.Node) -> None:
    name = f"hocket_{call.function.__name__}"
    graph.create_node("call_function", call.function, (call.slot, *values), name=name)


def _has_effect(node: fx.Node) -> bool:
    return node.op == "call_function" and (
        isinstance(node.target, HigherOrderOperator) or bool(node.is_impure())
    )


def _written_nodes(node: fx.Node) -> list[fx.Node]:
    """The nodes whose memory ``node`` writes."""
    if not isinstance(node.target, OpOverload):
        # The name of an operator with graphs of its own does not say what it does to its inputs.
        return node.all_input_nodes if _has_effect(node) else []
    given = dict(zip((a.name for a in node.target._schema.arguments), node.args, strict=False))
    written = [
        (given | dict(node.kwargs)).get(argument.name)
        for argument in node.target._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [value for value in tree_leaves(written) if isinstance(value, fx.Node)]


def _is_allocation(target: Any) -> bool:
    if not isinstance(target, OpOverload):
        return False
    return "empty" in target._schema.name.rpartition("::")[2].split("_")
