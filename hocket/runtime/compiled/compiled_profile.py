"""A compiled step as a graph for planners: the operators of its graphs, timed while they run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import fx

from hocket.errors import HocketError
from hocket.graph import OperationRow, StepGraph, StepRows
from hocket.runtime.compiled.graph_calls import BackwardGraph, ForwardGraph, Gradient, Graph
from hocket.runtime.compiled.traced_graph import must_precede, works
from hocket.runtime.observe.step_rows import parameter_rows

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, kw_only=True)
class _GraphRun:
    """``parameter_names``: those of the parameters among the graph's inputs, by position."""

    graph: Graph
    begin_s: float
    end_s: float
    durations_s: dict[str, float]
    parameter_names: dict[int, str]


class Recording:
    """The steps that ran while graphs were timed, each a list of forward and then of backward graphs."""

    def __init__(self) -> None:
        self._steps: list[list[_GraphRun]] = []

    def run(self, graph: Graph, inputs: list[Any]) -> Any:
        """Run ``graph`` under an interpreter that measures; one that autograd does not record is not kept."""
        begin_s = time.perf_counter()
        outputs, durations_s = graph.code.run_timed(inputs)
        run = _GraphRun(
            graph=graph,
            begin_s=begin_s,
            end_s=time.perf_counter(),
            durations_s=durations_s,
            parameter_names={slot: gradient.name for slot, gradient in graph.bound_gradients.items()},
        )
        if isinstance(graph, BackwardGraph):
            if self._steps:
                self._steps[-1].append(run)
        elif graph.trains:
            if not self._steps or isinstance(self._steps[-1][-1].graph, BackwardGraph):
                self._steps.append([])
            self._steps[-1].append(run)
        return outputs

    def rows(
        self, gradients: Iterable[Gradient], eager_reads: frozenset[str], model_name: str, batch_size: int
    ) -> StepRows:
        """The recorded steps of the usual form; ``eager_reads``: names of parameters that eager code reads.

        Raises
        ------
        HocketError
            When no step with a backward graph was recorded.
        """
        steps = [step for step in self._steps if isinstance(step[-1].graph, BackwardGraph)]
        if not steps:
            raise HocketError(
                "no compiled training step was recorded; run forward and backward passes while recording"
            )
        forms = Counter(map(_form, steps))
        usual = max(forms, key=forms.__getitem__)
        operations = list(_operations([step for step in steps if _form(step) == usual]))
        first, last = operations[0], operations[-1]
        first.reads.extend(sorted(eager_reads.difference(first.reads)))
        by_name = {gradient.name: gradient for gradient in gradients}
        late = {name for name, gradient in by_name.items() if gradient.accumulates and not gradient.is_whole}
        last.produces.extend(sorted(late.difference(last.produces)))
        order = dict.fromkeys(name for row in operations for name in row.reads) | dict.fromkeys(by_name)
        values = {name: by_name[name].parameter for name in order}
        return StepRows(
            model=model_name,
            batch_size=batch_size,
            device=next(iter(values.values())).device.type,
            parameters=parameter_rows(values),
            operations=operations,
        )


def gradient_order_of(graph: StepGraph, compute_order: Sequence[str]) -> list[str]:
    """The trained parameters' names in the order in which ``compute_order`` completes their gradients.

    ``compute_order``: names of operations, as in a plan; every producer is among them.
    """
    position = {name: i for i, name in enumerate(compute_order)}
    makers = graph.produces.transpose(graph.num_parameters)
    complete = {
        name: max(position[graph.operation_names[i]] for i in makers.row(p).tolist())
        for p, name in enumerate(graph.parameter_names)
        if graph.produced[p]
    }
    return sorted(complete, key=complete.__getitem__)


def _form(step: Sequence[_GraphRun]) -> tuple[Any, ...]:
    return tuple((run.graph, *run.parameter_names.values()) for run in step)


def _operations(steps: Sequence[Sequence[_GraphRun]]) -> Iterator[OperationRow]:
    """The operations of ``steps``, all of one form, in the order in which the first of them ran."""
    layouts = {run.graph: _Layout(run.graph.traced_module.graph) for run in steps[0]}
    counts: Counter[Graph] = Counter()
    unmatched: list[_NamedRun] = []
    ends: list[str] = []
    for j, run in enumerate(steps[0]):
        counts[run.graph] += 1
        prefix = run.graph.name if counts[run.graph] == 1 else f"{run.graph.name}.{counts[run.graph]}"
        forward = None
        if isinstance(run.graph, BackwardGraph):
            # Of several runs of a graph, autograd goes back through the last one first.
            forward = next((f for f in reversed(unmatched) if f.run.graph is run.graph.forward), None)
        named = _NamedRun(run, layouts[run.graph], prefix, forward)
        if forward is not None:
            unmatched.remove(forward)
        elif not isinstance(run.graph, BackwardGraph):
            unmatched.append(named)
        rows = list(named.rows([step[j] for step in steps], after_eager=j > 0))
        if j > 0:
            gaps_s = [step[j].begin_s - step[j - 1].end_s for step in steps]
            yield OperationRow(named.eager, named.phase, gaps_s, ends, [], named.completed_by_inputs())
        yield from rows
        used = {name for row in rows for name in row.inputs}
        ends = [row.name for row in rows if row.name not in used] or [named.eager][: j > 0]


class _Layout:
    """A graph without the nodes that do no work: ``stands_for`` are the workers and inputs behind each node.

    ``needs``: those that have to run before a node, or be there.
    """

    def __init__(self, graph: fx.Graph) -> None:
        before = must_precede(graph)
        self.workers = [node for node in graph.nodes if works(node)]
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.by_name = {node.name: node for node in graph.nodes}
        self.stands_for: dict[fx.Node, list[fx.Node]] = {}
        self.needs: dict[fx.Node, list[fx.Node]] = {}
        itself = {*self.workers, *self.inputs}
        for node in graph.nodes:
            behind = dict.fromkeys(found for other in before[node] for found in self.stands_for[other])
            self.needs[node] = list(behind)
            self.stands_for[node] = [node] if node in itself else self.needs[node]


class _NamedRun:
    """A run whose operations are named by ``prefix``; ``forward``: the run that saved tensors for it."""

    def __init__(self, run: _GraphRun, layout: _Layout, prefix: str, forward: _NamedRun | None) -> None:
        self.run = run
        self.eager = f"{prefix}.eager"
        self.phase: Phase = "forward" if isinstance(run.graph, ForwardGraph) else "backward"
        self._layout = layout
        self._prefix = prefix
        self._forward = forward
        self._slots = {node: slot for slot, node in enumerate(layout.inputs)}

    def rows(self, runs: Sequence[_GraphRun], *, after_eager: bool) -> Iterator[OperationRow]:
        """An operation for each worker; those that need none of the run come after what ran eagerly.

        Of the first run, which has nothing eager before it, they come after the one before: so they run.
        """
        earlier: str | None = None
        completes: dict[fx.Node, list[str]] = {}
        for node, names in self._completed_gradients().items():
            for behind in self._layout.stands_for[node]:
                completes.setdefault(behind, []).extend(names)
        for node in self._layout.workers:
            needs = self._layout.needs[node]
            found = [self._behind(other) for other in needs]
            inputs = dict.fromkeys(name for operations, _ in found for name in operations)
            if after_eager and all(other in self._slots for other in needs):
                inputs[self.eager] = None
            elif not inputs and earlier is not None and self.phase == "forward":
                inputs[earlier] = None
            earlier = f"{self._prefix}.{node.name}"
            reads = dict.fromkeys(name for _, parameters in found for name in parameters)
            yield OperationRow(
                name=earlier,
                phase=self.phase,
                duration_s=[run.durations_s[node.name] for run in runs],
                inputs=list(inputs),
                reads=list(reads),
                produces=completes.get(node, []),
            )

    def completed_by_inputs(self) -> list[str]:
        """The parameters whose gradients are there when the graph begins."""
        return [
            name
            for node, names in self._completed_gradients().items()
            if all(behind in self._slots for behind in self._layout.stands_for[node])
            for name in names
        ]

    def _completed_gradients(self) -> dict[fx.Node, list[str]]:
        if isinstance(self.run.graph, ForwardGraph):
            return {}
        bound = self.run.parameter_names
        return {
            node: [bound[slot] for slot in slots if slot in bound]
            for node, slots in self.run.graph.completes.items()
        }

    def _behind(self, node: fx.Node) -> tuple[list[str], list[str]]:
        """The operations (of the run or its forward run) and parameters that a worker or input stands for."""
        if node not in self._slots:
            return [f"{self._prefix}.{node.name}"], []
        if isinstance(self.run.graph, ForwardGraph):
            slot = self._slots[node]
            return [], [self.run.parameter_names[slot]] if slot in self.run.parameter_names else []
        # Saved tensors have the same name in both graphs; the others are gradients of outputs.
        saved = self._forward._layout.by_name.get(node.name) if self._forward is not None else None
        if self._forward is None or saved is None:
            return [], []
        found = [self._forward._behind(other) for other in self._forward._layout.stands_for[saved]]
        return [name for names, _ in found for name in names], [name for _, names in found for name in names]
