"""Compiled steps against eager ones, bit by bit, and what the runtime hears of them."""

import copy
import gc
import pickle
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from hocket.errors import HocketError
from hocket.graph import Phase, step_from_rows
from tests.unit.runtime.compiled_models import (
    Broken,
    Cnn,
    Mlp,
    Transformer,
    X,
    assert_same,
    backward,
    batches,
    compiled,
    fresh,  # noqa: F401
    make_model,
    train,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("make", [Mlp, Cnn, Transformer, Broken])
def test_training_is_bitwise_the_eager_one_in_any_order_of_gradients(make):
    expected = train(make_model(make), make)
    model, hooks, step = compiled(make)
    start = copy.deepcopy(model.state_dict())
    parameters = list(model.parameters())
    shuffled = random.Random(1).sample(parameters, len(parameters))
    for order in (None, parameters, shuffled):
        model.load_state_dict(start)
        hooks.order = order
        step.recompile()
        heard = []
        assert_same(train(model, make, lambda heard=heard: heard.append(hooks.reported_names())), expected)
        covered = {hooks.names[parameter] for parameter in step.covered_parameters}
        # Before the first backward pass nobody knows whether the graphs' gradients are all there is.
        assert heard[0] == [] if order is None else set(heard[0]) == covered
        assert all(set(names) == covered for names in heard[1:])
        if make is Broken:
            assert covered == {"plain.weight", "plain.bias", "out.weight", "out.bias"}
        else:
            assert len(covered) == len(parameters)
            if order is not None:
                assert heard[-1] == [hooks.names[parameter] for parameter in order]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_passes_without_gradients_are_the_eager_ones(mode):
    expected = make_model(Cnn)
    model, hooks, _ = compiled(Cnn)
    inputs, _ = next(batches(Cnn))
    for training in (True, False):
        outputs = []
        for each in (expected.train(training), model.train(training)):
            torch.manual_seed(0)
            with mode():
                outputs.append(each(inputs))
        assert torch.equal(*outputs)
        assert sorted(hooks.reads) == sorted(hooks.names.values())
        hooks.reads.clear()
    # In training mode batch normalisation has written its buffers.
    assert_same(list(model.buffers()), list(expected.buffers()))


@pytest.mark.parametrize("make", [Mlp, Transformer])
def test_first_read_comes_before_any_read(make):
    expected = make_model(make)
    model, hooks, step = compiled(make)
    changed = []

    def change(parameters):
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(1.25)
        changed.extend(parameters)

    hooks.first_read = change
    for inputs, _ in batches(make):
        change(expected.parameters())
        changed.clear()
        losses = []
        for each in (expected, model):
            torch.manual_seed(5)
            each.zero_grad()
            losses.append(each(inputs).square().sum())
            losses[-1].backward()
        assert torch.equal(*losses)
        assert_same([p.grad for p in model.parameters()], [p.grad for p in expected.parameters()])
        assert len(changed) == len(set(changed)) == len(list(model.parameters()))
    assert step.awaited_parameters == set(model.parameters())


def test_what_eager_code_reads_is_left_to_the_runtime():
    model, hooks, step = compiled(Broken)
    assert step.awaited_parameters == step.covered_parameters == frozenset()
    backward(model)
    backward(model)
    waited = {hooks.names[parameter] for parameter in step.awaited_parameters}
    assert waited == {
        *("twice.weight", "twice.bias", "plain.bias", "out.weight", "out.bias"),
        *("frozen.weight", "frozen.bias"),
    }


def test_a_deferred_weight_gradient_runs_later():
    class Shapes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.mm.default:
                shapes.append(tuple(result.shape))
            return result

    model, hooks, step = compiled(Mlp)
    backward(model)
    orders = []
    for hooks.order in (None, list(model.parameters())):
        step.recompile()
        shapes = []
        model.zero_grad()
        loss = model(X).sum()
        with Shapes():
            loss.backward()
        # Transposed or not, as the kernel had it.
        orders.append([shape if shape[0] == 6 else tuple(sorted(shape)) for shape in shapes])
    to_input, weights = [(6, 12), (6, 16)], [(8, 16), (12, 16), (4, 12)]
    assert orders[0] == [to_input[0], weights[2], to_input[1], weights[1], weights[0]]
    assert orders[1] == [*to_input, *weights]


def test_gradients_that_are_added_up_are_not_reported():
    eager = make_model(Mlp)
    model, hooks, step = compiled(Mlp)
    num_parameters = len(list(model.parameters()))

    def run(losses, expect, **options):
        for each in (eager, model):
            each.zero_grad()
            for loss in losses:
                loss(each).backward(**options)
        assert len(hooks.gradients) == expect
        hooks.gradients.clear()
        assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])

    def once(each):
        return each(X).sum()

    def twice(each):
        return each(X).sum() + each(2 * X).square().sum()

    run([twice], 0)
    assert step.covered_parameters == frozenset()  # a first backward pass that tells nothing
    run([once], 0)
    assert len(step.covered_parameters) == num_parameters
    run([once], num_parameters)
    run([twice], 0)
    run([once], num_parameters)
    run([once, once], num_parameters)  # the second adds to what is there
    model(X)  # without a backward pass: two forward passes before the next
    run([once], 0)
    run([once], num_parameters, retain_graph=True)
    for wanted in ([X.clone().requires_grad_()], [model[0].weight]):
        torch.autograd.grad(model(X if len(wanted[0]) > 6 else wanted[0]).sum(), wanted)
    run([once], num_parameters)


def test_a_gradient_with_parts_from_elsewhere_is_not_reported():
    def penalised(outputs):
        return outputs.sum() + model[0].weight.square().sum()

    model, hooks, step = compiled(Mlp)
    model[2].bias.register_hook(lambda gradient: 2 * gradient)
    for _ in range(2):
        backward(model, penalised)
    assert set(hooks.reported_names()) == set(hooks.names.values()) - {"0.weight", "2.bias"}
    assert {hooks.names[p] for p in hooks.names if p not in step.covered_parameters} == {"0.weight", "2.bias"}


def test_a_part_that_comes_after_the_gradient_was_sent_is_refused():
    model, _, _ = compiled(Mlp)
    backward(model)
    with pytest.raises(HocketError, match=r"'0\.weight' got another part .* leave compile=False"):
        backward(model, lambda outputs: outputs.sum() + model[0].weight.square().sum())


def test_reported_tells_the_runtime_what_it_has():
    model, _, step = compiled(Mlp)
    told = []
    weight = model[0].weight
    # As the runtime looks: a user's hook behind the accumulation would change what is reported.
    node = get_gradient_edge(weight).node
    node.register_hook(lambda *_: told.append(step.is_reported(weight)))
    backward(model)
    backward(model)
    model(X)
    backward(model)
    assert told == [False, True, False]
    assert not step.is_reported(model[0].weight)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_recompute_what_eager_ones_do(reentrant):
    class Checkpointed(Mlp):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 8))

        def forward(self, x):
            return self[4](self[2](self[0](checkpoint(self.inner, 2 * x, use_reentrant=reentrant))))

    # Reentrant checkpoints want an input that requires a gradient.
    wanted = X.clone().requires_grad_()
    eager = make_model(Checkpointed)
    model, hooks, _ = compiled(Checkpointed)
    hooks.order = list(model.parameters())
    for _ in range(3):
        for each in (eager, model):
            torch.manual_seed(2)
            each.zero_grad()
            each(wanted).square().sum().backward()
        assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])
        heard = hooks.reported_names()
    assert len(heard) == len(list(model.parameters()))


def test_layers_that_share_a_graph_keep_their_parameters_apart():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(x).relu()

    class Layers(nn.Sequential):
        def __init__(self):
            super().__init__(*(Layer() for _ in range(3)))

    expected = train(make_model(Layers), Mlp)
    model, hooks, step = compiled(Layers)
    step.record(True)
    assert_same(train(model, Mlp, hooks.reported_names), expected)
    step.record(False)
    assert len(step.covered_parameters) == len(step.awaited_parameters) == 12
    graph = step_from_rows(step.step_rows("layers", 6))
    assert graph.produced.all()
    forward = graph.phases == Phase.FORWARD
    reads = [graph.reads.row(i).tolist() for i in np.flatnonzero(forward)]
    assert sorted(filter(None, reads)) == [[i, i + 1] for i in range(0, 12, 2)]


@pytest.mark.parametrize(("dynamic", "sizes"), [(False, (6, 6, 5, 6)), (None, (6, 5, 4, 3, 6))])
def test_other_batch_sizes_are_compiled_bitwise_alike(dynamic, sizes):
    eager = make_model(Mlp)
    model, hooks, _ = compiled(Mlp, dynamic=dynamic)
    for size in sizes:
        for each in (eager, model):
            each.zero_grad()
            each(X[:size]).sum().backward()
        assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])
        heard = hooks.reported_names()
    assert len(heard) == len(list(model.parameters()))


def test_autocast_is_the_eager_one():
    eager = make_model(Cnn)
    model, _, _ = compiled(Cnn)
    inputs, _ = next(batches(Cnn))
    for each in (eager, model):
        torch.manual_seed(2)
        with torch.autocast("cpu", torch.bfloat16):
            loss = each(inputs).square().mean()
        loss.backward()
    assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])


def test_what_dynamo_no_longer_compiles_runs_eagerly():
    eager = make_model(Mlp)
    model, hooks, step = compiled(Mlp)
    with torch._dynamo.config.patch(recompile_limit=1):
        for size in (6, 6, 5):
            hooks.gradients.clear()
            for each in (eager, model):
                each.zero_grad()
                each(X[:size]).sum().backward()
            assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])
    assert hooks.gradients == []
    assert not any(step.is_reported(p) for p in step.covered_parameters)


@pytest.mark.parametrize("recorded", [False, True])
def test_an_error_of_the_runtime_comes_through_as_it_is(recorded):
    def refuse(*_):
        raise HocketError("training stopped")

    model, hooks, step = compiled(Mlp)
    backward(model)
    step.record(recorded)
    hooks.gradient = refuse
    with pytest.raises(HocketError, match=r"^training stopped$"):
        backward(model)
    hooks.first_read = refuse
    with pytest.raises(HocketError, match=r"^training stopped$"):
        model(X)
    del hooks.first_read, hooks.gradient
    backward(model)
    backward(model)
    assert len(hooks.reported_names()) == len(step.covered_parameters)


@pytest.mark.parametrize("undone", [False, True])
def test_what_is_compiled_keeps_no_model_alive(undone):
    model, hooks, step = compiled(Mlp)
    backward(model)
    loss = model(X).sum()
    if undone:
        step.undo()
    gone = [weakref.ref(each) for each in (model, hooks, step)]
    del model, hooks, step
    gc.collect()
    assert [each() for each in gone] == [None] * 3
    loss.backward()


def test_copies_and_an_undone_model_run_plainly():
    model, hooks, step = compiled(Mlp)
    seen = []
    model.register_forward_pre_hook(lambda *_: seen.append(torch.compiler.is_compiling()))
    outputs = model(X)
    model._forward_pre_hooks.clear()
    hooks.reads.clear()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(X), outputs)
        assert copied.forward.__self__ is copied
    step.undo()
    assert torch.equal(model(X), outputs)
    assert seen == [False]
    assert hooks.reads == []
    assert "forward" not in vars(model)
    assert not any(parameter._backward_hooks for parameter in model.parameters())
