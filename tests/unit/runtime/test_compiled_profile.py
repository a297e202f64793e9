"""Compiled steps as graphs for planners, and the orders that come back."""

import itertools

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

from hocket.errors import HocketError
from hocket.graph import check_plan, step_from_rows
from hocket.network import Network
from hocket.planner import plan
from hocket.runtime.compiled.compiled_profile import gradient_order_of
from hocket.runtime.compiled.traced_graph import Code, must_precede, reorder
from tests.unit.runtime.compiled_models import (
    Broken,
    Transformer,
    assert_same,
    backward,
    compiled,
    fresh,  # noqa: F401
    train,
)


def test_rows_are_the_dataflow_of_the_graphs():
    model, _, step = compiled(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    with pytest.raises(HocketError, match="no compiled training step was recorded"):
        step.step_rows("mlp", 6)
    backward(model)
    step.record(True)
    for _ in range(3):
        backward(model)
    step.record(False)
    backward(model)
    rows = step.step_rows("mlp", 6)
    assert [(o.name, o.inputs, o.reads, o.produces) for o in rows.operations] == [
        ("f0.addmm", [], ["0.bias", "0.weight"], []),
        ("f0.relu", ["f0.addmm"], [], []),
        ("f0.addmm_1", ["f0.relu"], ["2.bias", "2.weight"], []),
        ("b0.eager", ["f0.addmm_1"], [], []),
        ("b0.mm", ["b0.eager"], ["2.weight"], []),
        ("b0.mm_1", ["f0.relu", "b0.eager"], [], ["2.weight"]),
        ("b0.sum_1", ["b0.eager"], [], ["2.bias"]),
        ("b0.threshold_backward", ["b0.mm", "f0.relu"], [], []),
        ("b0.mm_2", ["b0.threshold_backward"], [], ["0.weight"]),
        ("b0.sum_2", ["b0.threshold_backward"], [], ["0.bias"]),
    ]
    assert [o.phase for o in rows.operations] == ["forward"] * 3 + ["backward"] * 7
    assert all(len(o.duration_s) == 3 and min(o.duration_s) > 0 for o in rows.operations)
    assert rows.parameters[1].shape == [16, 8]
    assert step_from_rows(rows).produced.all()


def test_what_takes_nothing_of_the_others_comes_after_the_one_before():
    class Masked(nn.Sequential):
        def forward(self, x):
            hidden = self[0](x)
            return self[1](hidden * torch.rand(16)) + torch.rand(4)

    model, _, step = compiled(lambda: Masked(nn.Linear(8, 16), nn.Linear(16, 4)))
    backward(model)
    step.record(True)
    backward(model)
    step.record(False)
    forward = [o for o in step.step_rows("masked", 6).operations if o.phase == "forward"]
    assert len(forward) > 5  # the masks are made by operations of their own
    assert [o.name for o in forward if not o.inputs] == [forward[0].name]


def test_rows_hold_what_eager_code_reads_and_completes():
    model, _, step = compiled(Broken)
    backward(model)
    step.record(True)
    backward(model)
    step.record(False)
    rows = step.step_rows("broken", 6)
    operations = {o.name: o for o in rows.operations}
    assert {"eager.weight", "plain.weight"} < set(rows.operations[0].reads)
    assert set(rows.operations[-1].produces) == {
        *("eager.weight", "eager.bias", "twice.weight", "twice.bias"),
    }
    # A graph runs as a whole: nothing of it can be put off until the next one.
    assert set(operations["b1.eager"].inputs) == {"b2.mm", "b2.mm_1", "b2.sum_1"}
    graph = step_from_rows(rows)
    untrained = {n for n, p in zip(graph.parameter_names, graph.produced, strict=True) if not p}
    assert untrained == {"frozen.weight", "frozen.bias", "unused.weight", "unused.bias"}


def test_a_plan_of_recorded_steps_is_followed_without_tracing_again():
    model, hooks, step = compiled(Transformer)
    train(model, Transformer)
    step.record(True)
    train(model, Transformer, hooks.gradients.clear)
    step.record(False)
    graph = step_from_rows(step.step_rows("transformer", 4))
    made = plan(graph, Network(bandwidth_bps=1e9, startup_s=1e-4, num_workers=2), "caramel")
    check_plan(made, graph)
    order = gradient_order_of(graph, made.compute_order)
    parameters = dict(model.named_parameters())
    hooks.order = [parameters[name] for name in order]
    traced = counters["stats"]["unique_graphs"]
    step.recompile()
    heard = []
    train(model, Transformer, lambda: heard.append(hooks.reported_names()))
    assert heard == [order] * 4
    assert counters["stats"]["unique_graphs"] == traced


def test_effects_keep_their_order():
    def effects(x):
        doubled = x * 2
        drawn = torch.rand_like(x)
        view = x.view(-1)
        x.add_(1)
        tripled = view * 3
        x.mul_(2)
        return doubled, drawn, tripled, torch.rand_like(x), x + 1

    traced = make_fx(effects, tracing_mode="fake")(torch.ones(2, 2))
    before = must_precede(traced.graph)
    (output,) = traced.graph.find_nodes(op="output")

    def results(order):
        torch.manual_seed(0)
        return list(Code(traced, order).run([torch.ones(2, 2)]))

    expected = results(list(traced.graph.nodes))
    for wanted in itertools.permutations(output.args[0]):
        order = reorder(traced.graph, before, wanted)
        assert sorted(order) == sorted(traced.graph.nodes)
        assert_same(results(order), expected)
