"""Exact operations, edges, reads and produced gradients of small hand-made models."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hocket.profiler import profile
from tests.unit.profiler.rows import classified, perceptron, phases_of, profiled, rows_of, total


def test_linear_relu_linear_with_sgd():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert profiled(model, classified(), optimizer, nn.CrossEntropyLoss()) == {
        "forward/0/addmm": ([], ["0.weight", "0.bias"], []),
        "forward/1/relu": (["forward/0/addmm"], [], []),
        "forward/2/addmm": (["forward/1/relu"], ["2.weight", "2.bias"], []),
        "forward/loss/_log_softmax": (["forward/2/addmm"], [], []),
        "forward/loss/nll_loss_forward": (["forward/loss/_log_softmax"], [], []),
        "backward/ones_like": (["forward/loss/nll_loss_forward"], [], []),
        "backward/loss/nll_loss_backward": (
            ["forward/loss/_log_softmax", "forward/loss/nll_loss_forward", "backward/ones_like"],
            [],
            [],
        ),
        "backward/loss/_log_softmax_backward_data": (
            ["forward/loss/_log_softmax", "backward/loss/nll_loss_backward"],
            [],
            [],
        ),
        "backward/2/mm": (["backward/loss/_log_softmax_backward_data"], ["2.weight"], []),
        "backward/2/mm.2": (["forward/1/relu", "backward/loss/_log_softmax_backward_data"], [], ["2.weight"]),
        "backward/2/sum": (["backward/loss/_log_softmax_backward_data"], [], ["2.bias"]),
        "backward/1/threshold_backward": (["forward/1/relu", "backward/2/mm"], [], []),
        "backward/0/mm": (["backward/1/threshold_backward"], [], ["0.weight"]),
        "backward/0/sum": (["backward/1/threshold_backward"], [], ["0.bias"]),
        # Each update comes after its gradient and after every operation that reads the parameter.
        "update/0.weight/add_": (["forward/0/addmm", "backward/0/mm"], ["0.weight"], []),
        "update/0.bias/add_": (["forward/0/addmm", "backward/0/sum"], ["0.bias"], []),
        "update/2.weight/add_": (
            ["forward/2/addmm", "backward/2/mm", "backward/2/mm.2"],
            ["2.weight"],
            [],
        ),
        "update/2.bias/add_": (["forward/2/addmm", "backward/2/sum"], ["2.bias"], []),
    }


def test_phases_parameters_and_sizes():
    model = perceptron()
    graph = profile(model, classified(), nn.CrossEntropyLoss(), None, steps=2, warmup=1)
    assert phases_of(graph) == ["forward"] * 5 + ["backward"] * 9
    assert graph.parameter_names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert graph.parameter_shapes == ((5, 4), (5,), (3, 5), (3,))
    assert graph.parameter_bytes.tolist() == [80, 20, 60, 12]
    assert graph.parameter_dtypes == ("float32",) * 4
    assert (graph.model, graph.batch_size, graph.device, graph.num_samples) == ("Sequential", 2, "cpu", 2)


def test_momentum_updates_go_by_their_parameters_name():
    model = nn.Linear(4, 3, bias=False)
    rows = profiled(model, classified(), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    assert {name: inputs for name, (inputs, _, _) in rows.items() if name.startswith("update")} == {
        "update/weight/mul_": [],
        "update/weight/add_": ["backward/mm", "update/weight/mul_"],
        "update/weight/add_.2": ["forward/mm", "update/weight/add_"],
    }


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


def test_a_residual_branch_joins():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), Residual())
    rows = profiled(model, classified())
    assert rows["forward/1/add"][0] == ["forward/0/mm", "forward/1/tanh"]
    assert rows["backward/1/tanh_backward"][0] == ["forward/1/tanh", "backward/ones_like"]
    assert rows["backward/1.inner/mm"] == (
        ["forward/0/mm", "backward/1/tanh_backward"],
        [],
        ["1.inner.weight"],
    )
    # The two branches' gradients of the first layer's output are added, then used.
    assert rows["backward/1.inner/add"][0] == ["backward/ones_like", "backward/1.inner/mm.2"]
    assert rows["backward/0/mm"] == (["backward/1.inner/add"], [], ["0.weight"])


def test_statistics_of_batch_norm_are_no_parameters():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    rows = profiled(model, (torch.randn(2, 3, 4, 4), None))
    assert rows["forward/1/native_batch_norm"] == (["forward/0/convolution"], ["1.weight", "1.bias"], [])
    assert rows["forward/1/add_"] == (["forward/0/convolution"], [], [])  # num_batches_tracked
    inputs, reads, produces = rows["backward/1/native_batch_norm_backward"]
    assert inputs == [
        "forward/0/convolution",
        "forward/1/native_batch_norm",
        "backward/2/native_batch_norm_backward",
    ]
    assert (reads, produces) == (["1.weight"], ["1.weight", "1.bias"])


def test_a_batch_norm_used_twice_orders_its_running_statistics():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x):
            return self.norm(x) + self.norm(2 * x)

    rows = profiled(Twice(), (torch.randn(2, 3, 4, 4), None))
    assert "forward/norm/native_batch_norm" in rows["forward/norm/native_batch_norm.2"][0]
    # In evaluation the statistics are only read.
    inference = profiled(Twice(), (torch.randn(2, 3, 4, 4), None), inference=True)
    assert inference["forward/norm/native_batch_norm.2"][0] == ["forward/mul"]


def test_an_in_place_relu_writes_what_it_reads():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 1))
    rows = profiled(model, (torch.randn(2, 3, 4, 4), None))
    assert rows["forward/1/relu_"][0] == ["forward/0/convolution"]
    assert rows["forward/2/convolution"][0] == ["forward/1/relu_"]
    assert rows["backward/1/threshold_backward"][0] == ["forward/1/relu_", "backward/2/convolution_backward"]
    assert rows["backward/2/convolution_backward"] == (
        ["forward/1/relu_", "backward/ones_like"],
        ["2.weight"],
        ["2.weight", "2.bias"],
    )


def test_a_write_comes_after_earlier_reads():
    class Overwriting(nn.Module):
        def forward(self, x):
            held = x * 1
            kept = held + 1  # reads held
            held.view(-1)[:3].zero_()  # overwrites part of it, through views
            return kept + held

    rows = profiled(Overwriting(), (torch.randn(2, 3), None), inference=True)
    assert rows["forward/zero_"][0] == ["forward/mul", "forward/add"]
    assert rows["forward/add.2"][0] == ["forward/mul", "forward/add", "forward/zero_"]


def test_disjoint_parts_of_one_buffer_do_not_depend_on_each_other():
    class Halves(nn.Module):
        def forward(self, x):
            buffer, doubled = torch.empty(2, len(x)), 2 * x
            buffer[0].copy_(doubled)
            buffer[1].copy_(doubled)
            return buffer[1] + 1

    rows = profiled(Halves(), (torch.randn(3), None), inference=True)
    assert rows == {
        "forward/mul": ([], [], []),
        "forward/copy_": (["forward/mul"], [], []),
        "forward/copy_.2": (["forward/mul"], [], []),
        "forward/add": (["forward/copy_.2"], [], []),
    }


def test_what_takes_nothing_of_the_others_comes_after_the_one_before():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.second(functional.dropout(self.first(x))) + torch.arange(3)

    rows = profiled(Masked(), (torch.randn(2, 3), None))
    assert [name for name, (inputs, _, _) in rows.items() if not inputs] == ["forward/first/addmm"]
    assert rows["forward/bernoulli_"][0] == ["forward/first/addmm"]
    assert rows["forward/arange"][0] == ["forward/second/addmm"]
    assert rows["backward/ones_like"][0] == ["forward/loss/sum"]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.embedding(tokens))


def test_tied_weights_are_one_parameter_complete_once():
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    graph = profile(model, (torch.tensor([1, 2, 6]), None), total, optimizer, steps=1, warmup=1)
    rows = rows_of(graph)
    assert graph.parameter_names == ("embedding.weight",)
    assert [name for name, row in rows.items() if row[1]] == [
        "forward/embedding/embedding",
        "forward/output/mm",
        "backward/output/mm.2",
        "update/embedding.weight/add_",
    ]
    # The sum of both gradients completes it.
    producers = [name for name, row in rows.items() if row[2]]
    assert len(producers) == 1
    assert set(rows[producers[0]][0]) >= {"backward/output/mm", "backward/embedding/embedding_dense_backward"}


def test_a_frozen_parameter_is_read_and_never_produced():
    model = perceptron()
    model[0].requires_grad_(False)
    rows = profiled(model, classified())
    assert rows["forward/0/addmm"][1] == ["0.weight", "0.bias"]
    assert [name for _, _, produces in rows.values() for name in produces] == ["2.weight", "2.bias"]


def test_an_unused_parameter_comes_last_and_shares_in_nothing():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.spare = nn.Parameter(torch.zeros(2))
            self.used = nn.Linear(4, 3)

        def forward(self, x):
            return self.used(x)

    graph = profile(Spare(), classified(), total, None, steps=1, warmup=1)
    assert graph.parameter_names == ("used.weight", "used.bias", "spare")
    assert graph.first_reader()[2] == graph.num_operations
    assert graph.produced.tolist() == [True, True, False]


def test_a_step_without_an_optimizer_has_no_updates():
    graph = profile(perceptron(), classified(), nn.CrossEntropyLoss(), None, steps=1, warmup=1)
    assert set(phases_of(graph)) == {"forward", "backward"}


def test_one_grouped_update_reads_every_parameter():
    model = perceptron()
    names = [name for name, _ in model.named_parameters()]
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    rows = profiled(model, classified(), optimizer, nn.CrossEntropyLoss())
    readers = {name: reads for name, (_, reads, _) in rows.items() if name.startswith("update") and reads}
    assert readers == {"update/_foreach_addcdiv_": names}
    inputs = set(rows["update/_foreach_addcdiv_"][0])
    assert inputs >= {"forward/0/addmm", "forward/2/addmm", "backward/2/mm", "update/_foreach_lerp_"}
    lerp_inputs = rows["update/_foreach_lerp_"][0]
    assert lerp_inputs == ["backward/2/mm.2", "backward/2/sum", "backward/0/mm", "backward/0/sum"]


def test_adam_one_parameter_at_a_time():
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    rows = profiled(model, classified(), optimizer)
    updates = {name.removeprefix("update/weight/"): row[0] for name, row in rows.items() if "update" in name}
    assert updates["lerp_"] == ["backward/mm"]
    assert updates["addcdiv_"][:1] == ["forward/mm"]
    # `step.item()` gives a number to Python; the square root after it may depend on that number.
    assert updates["_local_scalar_dense"] == ["update/weight/add_"]
    assert "update/weight/_local_scalar_dense" in updates["sqrt"]


def test_a_value_handed_to_python_comes_before_what_follows():
    class Scaled(nn.Module):
        def forward(self, x):
            scale = x.max().item()
            return torch.ones(3) * scale

    rows = profiled(Scaled(), (torch.randn(3), None), inference=True)
    assert rows == {
        "forward/max": ([], [], []),
        "forward/_local_scalar_dense": (["forward/max"], [], []),
        "forward/ones": (["forward/_local_scalar_dense"], [], []),
        "forward/mul": (["forward/ones"], [], []),
    }


def test_a_sparse_gradient_is_followed():
    model = nn.Embedding(7, 4, sparse=True)
    rows = profiled(model, (torch.tensor([1, 2]), None), torch.optim.SGD(model.parameters(), 0.1))
    producers = [name for name, row in rows.items() if row[2] == ["weight"]]
    updates = [row for name, row in rows.items() if name.startswith("update") and "weight" in row[1]]
    assert len(producers) == 1
    assert updates
    assert all("forward/embedding" in inputs for inputs, _, _ in updates)


def test_a_checkpoint_is_named_by_the_modules_it_recomputes():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = perceptron()

        def forward(self, x):
            return checkpoint(self.layers, x, use_reentrant=False)

    rows = profiled(Checkpointed(), classified())
    assert rows["backward/layers.0/addmm"][1] == ["layers.0.weight", "layers.0.bias"]
    assert rows["backward/layers.1/relu"][0] == ["backward/layers.0/addmm"]
    assert rows["backward/layers.2/mm.2"] == (
        ["backward/ones_like", "backward/layers.1/relu"],
        [],
        ["layers.2.weight"],
    )


def test_a_trained_loss_and_inputs_by_name():
    class Margin(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, outputs, targets):
            return (self.scale * outputs - targets).pow(2).mean()

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, *, features):
            return self.layer(features)

    batch = ({"features": torch.randn(2, 4)}, torch.randn(2, 1))
    graph = profile(Named(), batch, Margin(), None, steps=1, warmup=1)
    assert graph.batch_size == 2
    assert graph.parameter_names == ("layer.weight", "layer.bias", "loss.scale")
    assert rows_of(graph)["forward/loss/mul"][1] == ["loss.scale"]


@pytest.mark.parametrize("foreach", [False, True])
def test_the_structure_repeats(foreach):
    def graph():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(), nn.Linear(5, 3))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        return profile(model, classified(), nn.CrossEntropyLoss(), optimizer, steps=2, warmup=1)

    first, second = graph(), graph()
    assert rows_of(first) == rows_of(second)
    assert first.order.tolist() == list(range(first.num_operations))
