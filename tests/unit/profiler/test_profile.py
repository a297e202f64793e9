"""Measuring: what is counted, what is refused, and that nothing of the caller's changes."""

import copy
import dataclasses
import random

import numpy as np
import pytest
import torch
from torch import nn

import hocket
from hocket.errors import HocketError
from hocket.graph import load_step, save_step
from hocket.network import Network
from hocket.predictor import predict
from hocket.profiler import make_step, profile, profile_step
from hocket.profiler.torch_step import _share
from tests.unit.profiler.rows import classified, perceptron, phases_of, profiled, rows_of, total


def test_hocket_profile_is_this_one():
    assert hocket.profile is profile


def test_a_profile_has_a_duration_an_operation_and_step():
    progress = []
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    measured = profile_step(
        make_step(model, classified(), nn.CrossEntropyLoss(), optimizer),
        steps=3,
        warmup=2,
        name="perceptron",
        batch_size=7,
        progress=lambda done, total: progress.append((done, total)),
    )
    graph = measured.graph
    assert graph.durations_s.shape == (18, 3)
    assert (graph.durations_s > 0).all()
    assert measured.plain_step_s.shape == measured.own_sum_s.shape == measured.operations_sum_s.shape == (3,)
    assert (measured.operations_sum_s >= measured.own_sum_s).all()
    assert np.array_equal(measured.operations_sum_s, graph.durations_s.sum(axis=0))
    assert measured.sum_to_plain >= measured.own_to_plain > 0
    assert progress == [(k, 9) for k in range(1, 10)]
    assert (graph.model, graph.batch_size) == ("perceptron", 7)


@pytest.mark.parametrize(
    ("plain", "share"),
    [
        ([10.0, 12.0, 11.0], 0.5),  # own times sum to 8, 6 lie between: half of those make 11
        ([9.0, 8.0, 7.0], 0.0),
        ([5.0, 5.0, 5.0], 0.0),  # never negative
        ([50.0, 50.0, 50.0], 1.0),  # never more than was measured
    ],
)
def test_the_share_makes_the_sums_the_plain_steps(plain, share):
    own, between = np.full((2, 3), 4.0), np.full((2, 3), 3.0)
    assert _share(np.array(plain), own, between) == share


def test_a_profile_survives_its_file(tmp_path):
    graph = profile(perceptron(), classified(), nn.CrossEntropyLoss(), None, steps=2, warmup=1)
    save_step(graph, tmp_path / "step.json")
    again = load_step(tmp_path / "step.json")
    assert rows_of(again) == rows_of(graph)
    assert np.array_equal(again.durations_s, graph.durations_s)


def test_inference_is_the_forward_pass_in_evaluation_mode():
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(), nn.BatchNorm1d(5))
    graph = profile(model, classified(), None, None, steps=1, warmup=1, inference=True)
    assert set(phases_of(graph)) == {"forward"}
    assert rows_of(graph) == {
        "forward/0/addmm": ([], ["0.weight", "0.bias"], []),
        "forward/2/native_batch_norm": (["forward/0/addmm"], ["2.weight", "2.bias"], []),
    }
    assert all(module.training for module in model.modules())


def everything_of(model, optimizer):
    return copy.deepcopy(
        {
            "state": model.state_dict(),
            "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
            "training": [module.training for module in model.modules()],
            "optimizer": optimizer.state_dict(),
            "generators": (torch.get_rng_state(), random.getstate(), np.random.get_state()),  # noqa: NPY002
        }
    )


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


class Restless(nn.Module):
    """Draws from every generator, trains batch norm, and assigns a buffer anew."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return self.layers(x) * (1 + random.random() + np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize(
    "optimizer_type", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad, torch.optim.RAdam]
)
def test_profiling_leaves_model_and_optimizer_as_they_were(optimizer_type, stepped, inference):
    model, loss, batch = Restless(), nn.CrossEntropyLoss(), classified()
    model.layers[1].eval()  # a mode that a plain train() would not bring back
    optimizer = optimizer_type(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    if stepped:
        loss(model(batch[0]), batch[1]).backward()
        optimizer.step()
        schedule.step()
    before = everything_of(model, optimizer)
    identities = [id(p) for p in model.parameters()], id(model.seen), id(optimizer.param_groups[0])
    profile(model, batch, loss, optimizer, steps=2, warmup=6, inference=inference)
    assert same(everything_of(model, optimizer), before)
    assert identities == ([id(p) for p in model.parameters()], id(model.seen), id(optimizer.param_groups[0]))


def test_nothing_changes_when_the_step_raises():
    class Failing(Restless):
        def forward(self, x):
            if self.seen == 2:
                raise ValueError("enough\nof this")
            return super().forward(x)

    model, batch = Failing(), classified()
    optimizer = torch.optim.Adam(model.parameters())
    before = everything_of(model, optimizer)
    with pytest.raises(HocketError, match=r"^the step's forward pass raised ValueError: enough$") as caught:
        profile(model, batch, nn.CrossEntropyLoss(), optimizer)
    assert isinstance(caught.value.__cause__, ValueError)
    assert same(everything_of(model, optimizer), before)


def test_steps_that_differ_are_refused():
    class Alternating(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x).relu() if self.calls < 5 else self.layer(x).tanh()

    with pytest.raises(HocketError) as caught:
        profile(Alternating(), classified(), nn.CrossEntropyLoss(), None, steps=3, warmup=1)
    message = str(caught.value)
    assert message.startswith(
        "sampled step 1 ran aten.tanh.default as call 2 where the recorded step ran aten.relu.default; "
    )
    assert "raise warmup" in message


def test_a_step_that_settles_needs_warmup():
    class Settling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x).relu() if self.calls < 4 else self.layer(x).tanh()

    with pytest.raises(HocketError, match="raise warmup"):
        profile(Settling(), classified(), total, None, steps=2, warmup=1)
    assert profile(Settling(), classified(), total, None, steps=2, warmup=3).num_samples == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps=0 and warmup=3 must each be at least 1"),
        ({"warmup": 0}, "steps=20 and warmup=0 must each be at least 1"),
        ({"model": len}, "model is a builtin_function_or_method; pass a torch.nn.Module"),
        ({"batch": [1]}, "batch is a list of 1, without targets for the loss; give"),
        ({"batch": torch.zeros(2)}, "batch is a Tensor, without targets for the loss; give"),
        ({"batch": "cifar"}, "batch is a str; give a tensor, a dict, a pair"),
        ({"loss": 3}, r"loss is a int; pass a function of \(outputs, targets\), or None"),
        ({"loss": None}, "the step's forward pass raised TypeError: .* takes 2 positional arguments"),
        (
            {"loss": None, "batch": torch.zeros(2, 4)},
            r"the model returned a tensor of shape \[2, 3\], and no",
        ),
        ({"optimizer": "sgd"}, "optimizer is a str; pass a torch.optim.Optimizer or None"),
        ({"model": nn.LazyLinear(3)}, "'weight' is lazy and has no shape yet"),
        ({"model": nn.LazyBatchNorm1d(affine=False)}, "'running_mean' is lazy"),
        ({"batch": (3, 4)}, "no tensor with a batch dimension; pass batch_size"),
        ({"loss": lambda outputs, targets: outputs}, r"loss returned a tensor of shape \[2, 3\]"),
        ({"loss": lambda outputs, targets: 3.0}, "loss returned a float; it must return a scalar tensor"),
        ({"batch": (torch.zeros(2, 9), None)}, "the step's forward pass raised RuntimeError: mat1 and mat2"),
        ({"loss": lambda outputs, targets: outputs.sum().detach()}, "the step's backward pass raised"),
    ],
)
def test_what_makes_no_step_is_refused(changes, message):
    arguments = {"model": perceptron(), "batch": classified(), "loss": total, "optimizer": None} | changes
    with pytest.raises(HocketError, match=message) as caught:
        profile(**arguments)
    assert "\n" not in str(caught.value)


def test_a_closure_optimizer_is_refused_in_one_line():
    model = perceptron()
    with pytest.raises(HocketError, match=r"the step's optimizer raised TypeError: .*closure"):
        profile(model, classified(), total, torch.optim.LBFGS(model.parameters()), steps=1)


@pytest.mark.slow  # importing the compiler takes seconds
def test_a_compiled_model_is_refused():
    with pytest.raises(HocketError, match=r"profile the module given to torch\.compile"):
        profile(torch.compile(perceptron()), classified(), total, None, steps=1)


def test_a_model_that_does_nothing_is_refused():
    with pytest.raises(HocketError, match="runs no operation"):
        profile(nn.Identity(), classified(), total, None, inference=True)


def test_gradients_of_parameters_outside_the_optimizer_do_not_pile_up():
    model = perceptron()
    rows = profiled(model, classified(), torch.optim.SGD(model[2].parameters(), 0.1))
    assert [name for name in rows if name.startswith("update")] == [
        "update/2.weight/add_",
        "update/2.bias/add_",
    ]
    assert [name for _, _, produces in rows.values() for name in produces] == [
        "2.weight",
        "2.bias",
        "0.weight",
        "0.bias",
    ]


@pytest.mark.parametrize(("factor", "doubted"), [(1.0, False), (1.14, False), (1.2, True), (0.8, True)])
def test_a_sum_that_is_not_the_steps_is_doubted(factor, doubted):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    measured = profile_step(make_step(model, classified(), nn.CrossEntropyLoss(), optimizer), steps=2)
    sums = measured.operations_sum_s
    off = dataclasses.replace(measured, plain_step_s=sums / factor)
    assert (f"with operations that sum to {factor:.0%} of a step" in off.caveat) == doubted


@pytest.mark.parametrize(("factor", "told"), [(1.4, False), (1.6, True)])
def test_steps_unlike_each_other_are_told_of(factor, told):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    measured = profile_step(make_step(model, classified(), nn.CrossEntropyLoss(), optimizer), steps=2)
    first_s = measured.graph.durations_s[:, :1]
    unlike = dataclasses.replace(measured.graph, durations_s=np.hstack([first_s, factor * first_s]))
    measured = dataclasses.replace(measured, graph=unlike)
    assert ("workers are predicted to wait" in measured.doubt) == told


@pytest.mark.parametrize(("slow", "told"), [(1.01, False), (1.4, True)])
def test_a_mean_apart_from_the_median_is_told_of_as_what_predictions_go_by(slow, told):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    measured = profile_step(make_step(model, classified(), nn.CrossEntropyLoss(), optimizer), steps=2)
    first_s = measured.graph.durations_s[:, :1]
    unlike = dataclasses.replace(
        measured.graph, durations_s=np.hstack([first_s, first_s, slow * first_s]) / first_s.sum()
    )
    measured = dataclasses.replace(measured, graph=unlike)
    said = "; these are medians, and predictions go by the mean sum, 1.13 s"
    assert (said in measured.doubt) == ("the mean" in measured.doubt) == told
    (row,) = predict(unlike, Network(), workers=1, steps=20_000, skip=0)
    assert row.alone_throughput == pytest.approx(unlike.batch_size / measured.operations_sum_s.mean())
    assert row.step_s == pytest.approx(measured.operations_sum_s.mean(), rel=5e-3)
