"""Compiled steps against eager ones, bit by bit, and what the runtime hears of them."""

import copy
import itertools
import pickle
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from hocket.errors import HocketError
from hocket.graph import Phase, check_plan, step_from_rows
from hocket.network import Network
from hocket.planner import plan
from hocket.runtime.compiled import compile_model
from hocket.runtime.compiled_graph import Code, must_precede, reordered
from hocket.runtime.compiled_rows import gradient_order_of

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def fresh():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(before)


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 4))


class Cnn(nn.Sequential):
    def __init__(self):
        first = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3)]
        super().__init__(*first, *second, nn.Flatten(), nn.Linear(8, 4))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Dropout(0.2))
        self.out = nn.Linear(16, 11)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return self.out(x + self.mlp(self.norms[1](x))).flatten(0, 1)


class Broken(nn.Module):
    """Three graphs with eager code between them; some parameters are frozen, unused, or read twice."""

    def __init__(self):
        super().__init__()
        self.twice, self.plain, self.eager = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.out, self.unused, self.frozen = nn.Linear(8, 4), nn.Linear(2, 2), nn.Linear(8, 8)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = self.read_eagerly(self.frozen(self.twice(x).relu()))
        x = self.plain(x).relu() + self.twice(x)
        torch._dynamo.graph_break()
        return self.out(x)

    @torch._dynamo.disable
    def read_eagerly(self, x):
        return self.eager(x) + self.plain.weight.detach().norm()


def batches(make):
    seeded = torch.Generator().manual_seed(1)
    for _ in range(4):
        if make is Transformer:
            inputs = torch.randint(0, 11, (4, 5), generator=seeded)
        else:
            inputs = torch.randn((6, 3, 8, 8) if make is Cnn else (6, 8), generator=seeded)
        yield inputs, torch.randint(0, 4, (20 if make is Transformer else 6,), generator=seeded)


class Hooks:
    def __init__(self, model):
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.order = None
        self.gradients = []
        self.reads = []

    def gradient(self, parameter, gradient):
        self.gradients.append((parameter, gradient.clone()))

    def first_read(self, parameters):
        self.reads += [self.names[parameter] for parameter in parameters]

    def gradient_order(self):
        return self.order

    def heard(self):
        """The names of the parameters whose gradients came in the last backward pass, each once and right."""
        assert all(torch.equal(gradient, p.grad) for p, gradient in self.gradients)
        names = [self.names[parameter] for parameter, _ in self.gradients]
        assert len(set(names)) == len(names)
        self.gradients.clear()
        return names


def make_model(make):
    torch.manual_seed(0)
    return make()


def compiled(make, **options):
    model = make_model(make)
    hooks = Hooks(model)
    return model, hooks, compile_model(model, hooks, **options)


def train(model, make, after_backward=lambda: None):
    """Losses and gradients of each step, and all that the model holds after the last."""
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    history = []
    for inputs, targets in batches(make):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        after_backward()
        history.append([loss.detach(), *(p.grad for p in model.parameters())])
        optimizer.step()
    return history, list(model.state_dict().values())


def assert_same(one, other):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif one is None:
        assert other is None
    else:
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)


def backward(model, loss=torch.sum):
    model.zero_grad()
    loss(model(X)).backward()


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
        assert_same(train(model, make, lambda heard=heard: heard.append(hooks.heard())), expected)
        covered = {hooks.names[parameter] for parameter in step.covered}
        # Before the first backward pass nobody knows whether the graphs' gradients are all there is.
        assert heard[0] == [] if order is None else set(heard[0]) == covered
        assert all(set(names) == covered for names in heard[1:])
        if make is Broken:
            assert covered == {"plain.weight", "plain.bias", "out.weight", "out.bias"}
        else:
            assert len(covered) == len(parameters)
            if order is not None:
                assert heard[-1] == [hooks.names[parameter] for parameter in order]


def test_evaluation_is_the_eager_one():
    expected = make_model(Cnn)
    model, hooks, _ = compiled(Cnn)
    inputs, _ = next(batches(Cnn))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            # In training mode batch normalisation writes its buffers.
            torch.manual_seed(0)
            outputs = expected(inputs)
            torch.manual_seed(0)
            assert torch.equal(model(inputs), outputs)
            assert torch.equal(model.eval()(inputs), expected.eval()(inputs))
            assert len(hooks.reads) == 2 * len(list(model.parameters()))
            hooks.reads.clear()
        model.train(), expected.train()
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
    assert step.waited == set(model.parameters())


def test_what_eager_code_reads_is_left_to_the_runtime():
    model, hooks, step = compiled(Broken)
    assert step.waited == step.covered == frozenset()
    backward(model)
    backward(model)
    waited = {hooks.names[parameter] for parameter in step.waited}
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
    assert step.covered == frozenset()  # a first backward pass that tells nothing
    run([once], 0)
    assert len(step.covered) == num_parameters
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
    assert set(hooks.heard()) == set(hooks.names.values()) - {"0.weight", "2.bias"}
    assert {hooks.names[p] for p in hooks.names if p not in step.covered} == {"0.weight", "2.bias"}


def test_a_part_that_comes_after_the_gradient_was_sent_is_refused():
    model, _, _ = compiled(Mlp)
    backward(model)
    with pytest.raises(HocketError, match=r"'0\.weight' got another part .* leave compile=False"):
        backward(model, lambda outputs: outputs.sum() + model[0].weight.square().sum())


def test_reported_tells_the_runtime_what_it_has():
    model, _, step = compiled(Mlp)
    told = []
    model[0].weight.register_post_accumulate_grad_hook(lambda p: told.append(step.reported(p)))
    backward(model)
    backward(model)
    model(X)
    backward(model)
    assert told == [False, True, False]
    assert not step.reported(model[0].weight)


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
        heard = hooks.heard()
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
    assert_same(train(model, Mlp, hooks.heard), expected)
    step.record(False)
    assert len(step.covered) == len(step.waited) == 12
    graph = step_from_rows(step.step_rows("layers", 6))
    assert graph.produced.all()
    forward = graph.phases == Phase.FORWARD
    reads = [graph.reads.row(i).tolist() for i in np.flatnonzero(forward)]
    assert sorted(filter(None, reads)) == [[i, i + 1] for i in range(0, 12, 2)]


@pytest.mark.parametrize("dynamic", [False, None])
def test_other_batch_sizes(dynamic):
    eager = make_model(Mlp)
    model, hooks, _ = compiled(Mlp, dynamic=dynamic)
    for size in (6, 6, 5, 6, 4, 3):
        for each in (eager, model):
            each.zero_grad()
            each(X[:size]).sum().backward()
        assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])
        heard = hooks.heard()
    assert len(heard) == len(list(model.parameters()))


def test_autocast_is_the_eager_one():
    eager = make_model(Transformer)
    model, _, _ = compiled(Transformer)
    inputs, _ = next(batches(Transformer))
    for each in (eager, model):
        torch.manual_seed(2)
        with torch.autocast("cpu", torch.bfloat16):
            loss = each(inputs).square().mean()
        loss.backward()
    assert_same([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])


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
    train(model, Transformer, lambda: heard.append(hooks.heard()))
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
        order = reordered(traced.graph, before, wanted)
        assert sorted(order) == sorted(traced.graph.nodes)
        assert_same(results(order), expected)


def test_undo_and_copies():
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
