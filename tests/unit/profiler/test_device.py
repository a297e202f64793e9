"""Derived steps: the structure of the real one, durations of a roofline."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from hocket import models
from hocket.datasheets import PRECISIONS
from hocket.errors import HocketError, UnknownNameError
from hocket.profiler import DEVICES, Target, derive, fake, is_derived, make_step, profile
from hocket.profiler._call import SeenTensor, call_of
from hocket.profiler._cost import CallWork
from hocket.profiler._expected_error import FAMILY_ERRORS
from hocket.profiler._fake_step import record_fake
from hocket.profiler.device import record_works
from hocket.profiler.paper_roofline import FITTED, duration_s
from tests.naive.convolution import pairs
from tests.unit.profiler.rows import classified, perceptron, rows_of, total


def convolutional(batch_size=2):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    batch = torch.randn(batch_size, 3, 4, 4), torch.randint(3, (batch_size,))
    return model, batch, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def test_the_derived_structure_is_the_profiled_one():
    setup = convolutional()
    profiled = profile(*setup, steps=1, warmup=1)
    derived = derive(make_step(*setup), device="v100")
    assert rows_of(derived) == rows_of(profiled)
    assert derived.parameter_names == profiled.parameter_names
    assert derived.parameter_bytes.tolist() == profiled.parameter_bytes.tolist()
    assert (derived.device, derived.batch_size, derived.num_samples) == ("v100", 2, 1)


def test_deriving_changes_nothing():
    model, batch, loss, optimizer = convolutional()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    derive(make_step(model, batch, loss, optimizer))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert not optimizer.state
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_built_inside_fake_derives_the_same():
    real = derive(make_step(*convolutional()))
    with fake():
        setup = convolutional()
    built_fake = derive(make_step(*setup))
    assert rows_of(built_fake) == rows_of(real)
    assert np.array_equal(built_fake.durations_s, real.durations_s)


def test_inference_derives_the_forward_pass():
    model, batch, loss, optimizer = convolutional()
    graph = derive(make_step(model, batch, loss, optimizer, inference=True))
    assert [name.split("/")[0] for name in graph.operation_names] == ["forward"] * 4
    assert model.training


@pytest.mark.parametrize("device", ["k80", "h100"])
def test_durations_are_positive_and_grow_with_the_batch(device):
    sums = []
    for batch_size in (64, 512):
        with fake():
            setup = models.make("alexnet_v2", batch_size)
        graph = derive(make_step(*setup), device=device)
        assert (graph.durations_s > 0).all()
        sums.append(graph.durations_s.sum())
    assert 4 < sums[1] / sums[0] < 8


def test_the_roofline_takes_the_longer_of_computing_and_moving():
    sheet, launch = DEVICES["k80"], FITTED.launch_s
    second_of_memory = sheet.bandwidth_bps * FITTED.memory
    second_of_products = sheet.peak_flops * FITTED.matrix["k80"]
    assert duration_s(CallWork("elementwise", 1.0, second_of_memory), "k80", FITTED) == pytest.approx(
        1 + launch
    )
    assert duration_s(CallWork("matrix", second_of_products, 8.0), "k80", FITTED) == pytest.approx(1 + launch)
    assert duration_s(CallWork("winograd", second_of_products, 8.0), "k80", FITTED) == pytest.approx(
        1 / FITTED.winograd_speedup + launch
    )
    assert duration_s(CallWork("matrix", 2 * second_of_products, 3 * second_of_memory), "k80", FITTED) > 3


def works_by_name(model, batch, inference=False):
    recorder, works = record_works(make_step(model, batch, total, None, inference))
    return {o.name: work for o, work in zip(recorder.operations, works, strict=True)}


def test_the_work_of_products_and_convolutions():
    works = works_by_name(perceptron(), classified(batch_size=2))
    assert works["forward/0/addmm"] == CallWork("matrix", 2 * 2 * 4 * 5, 4 * (5 + 2 * 4 + 4 * 5 + 2 * 5))
    assert works["forward/1/relu"] == CallWork("elementwise", 10, 4 * (10 + 10))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.Conv2d(5, 6, 3, stride=2, bias=False))
    works = works_by_name(model, (torch.randn(2, 3, 9, 9), None))
    kinds = {name: works[f"forward/{name}/convolution"].kind for name in "012"}
    assert kinds == {"0": "winograd", "1": "matrix", "2": "matrix"}
    forward, backward = (
        works[f"{phase}/0/convolution{end}"] for phase, end in (("forward", ""), ("backward", "_backward"))
    )
    assert forward.flops == 2 * 2 * 4 * 7 * 7 * 3 * 9
    assert (backward.kind, backward.flops) == ("winograd", forward.flops)  # the input needs no gradient
    assert works["backward/1/convolution_backward"].flops == 2 * works["forward/1/convolution"].flops


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("channels", "groups"), [((4, 6), 1), ((4, 6), 2), ((3, 6), 3), ((4, 4), 4)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_convolutions_count_every_product_of_a_naive_one(
    dims, transposed, channels, groups, stride, dilation
):
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    layer = kind(*channels, 2, bias=False, dtype=torch.float64, **options)
    x = torch.randn(2, channels[0], *(3 + k for k in range(dims)), dtype=torch.float64, requires_grad=True)
    y = layer(x)
    above = torch.randn_like(y)
    y.backward(above)
    expected, x_grad, w_grad = (torch.zeros_like(t) for t in (y, x, layer.weight))
    number = 0
    with torch.no_grad():
        places = pairs(tuple(x.shape), tuple(layer.weight.shape), transposed=transposed, **options)
        for out, into, weight in places:
            expected[out] += x[into] * layer.weight[weight]
            x_grad[into] += above[out] * layer.weight[weight]
            w_grad[weight] += above[out] * x[into]
            number += 1
    for ours, torchs in ((expected, y), (x_grad, x.grad), (w_grad, layer.weight.grad)):
        torch.testing.assert_close(ours, torchs)
    works = works_by_name(layer, (x, None))
    (forward,) = [work for name, work in works.items() if name.endswith("/convolution")]
    (backward,) = [work for name, work in works.items() if name.endswith("/convolution_backward")]
    assert (forward.flops, backward.flops) == (2 * number, 4 * number)
    works = works_by_name(layer, (x.detach(), None))  # the input needs no gradient
    (backward,) = [work for name, work in works.items() if name.endswith("/convolution_backward")]
    assert backward.flops == 2 * number


def test_the_work_of_recurrent_layers_and_attention():
    works = works_by_name(nn.LSTM(6, 8, batch_first=True), (torch.randn(3, 5, 6), None), inference=True)
    layers = [work for name, work in works.items() if "rnn" in name]
    assert [(work.kind, work.flops) for work in layers] == [("matrix", 2 * 5 * 3 * (6 * 32 + 8 * 32))]

    class Attention(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    works = works_by_name(Attention(), (torch.randn(2, 4, 16, 8), None), inference=True)
    assert [(w.kind, w.flops) for w in works.values()] == [("matrix", 2 * (2 * 4 * 16 * 16 * 8) * 2)]


def test_an_embedding_moves_only_the_rows_it_takes():
    works = works_by_name(nn.Embedding(1000, 8), (torch.tensor([1, 2, 3]), None))
    assert works["forward/embedding"].num_bytes == 3 * 8 + 2 * (3 * 8 * 4)
    assert works["backward/embedding_dense_backward"].num_bytes >= 1000 * 8 * 4


def test_jitter_is_common_to_a_step_and_leaves_the_mean():
    setup = convolutional()
    still = derive(make_step(*setup), samples=3).durations_s
    assert np.array_equal(still, np.repeat(still[:, :1], 3, axis=1))
    moving = derive(make_step(*setup), samples=4000, jitter=0.1, seed=1).durations_s / still[:, :1]
    assert np.allclose(moving, moving[:1])
    assert abs(moving[0].mean() - 1) < 0.01
    assert abs(np.log(moving[0]).std() - 0.1) < 0.01
    again = derive(make_step(*setup), samples=4000, jitter=0.1, seed=1).durations_s / still[:, :1]
    assert np.array_equal(again, moving)


def test_devices_are_derived_measured_or_unknown():
    assert {name: is_derived(name) for name in ("cpu", "cuda", "k80", "h100")} == {
        "cpu": False,
        "cuda": False,
        "k80": True,
        "h100": True,
    }
    with pytest.raises(
        UnknownNameError,
        match=r"^device 'v10' is unknown; did you mean 'v100' or 'v100-32gb'\? choose one of: cpu, cuda, k80",
    ):
        derive(make_step(*convolutional()), device="v10")
    with pytest.raises(HocketError, match=r"device 'cpu' is measured, not derived; use hocket\.profile"):
        derive(make_step(*convolutional()), device="cpu")
    with pytest.raises(HocketError, match=r"samples=0 and jitter=0\.0 must be at least 1 and 0"):
        derive(make_step(*convolutional()), samples=0)
    with pytest.raises(HocketError, match="jitter=nan must be"):
        derive(make_step(*convolutional()), jitter=float("nan"))


def test_a_step_that_looks_at_a_value_cannot_be_derived():
    class Looking(nn.Module):
        def forward(self, x):
            return x[x > 0].sum() if x.max() > 0 else x.sum()

    with pytest.raises(HocketError, match=r"needs the value of a tensor .* profile it on a real device"):
        derive(make_step(Looking(), classified(), total, None, inference=True))


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("vgg19_22k", "lstm_ptb", "googlenet") else pytest.param(name, marks=pytest.mark.long)
        for name in models.names()
    ],
)
def test_every_model_derives(name, inference):
    with fake():
        setup = models.make(name, 4, training=not inference)
    graph = derive(make_step(*setup, inference=inference), device="v100", name=name)
    table = models.parameter_table(name)
    assert graph.num_parameters == len(table)
    assert dict(zip(graph.parameter_names, graph.parameter_shapes, strict=True)) == {
        row.name: row.shape for row in table
    }
    assert graph.produced.all() != inference
    assert inference or graph.num_operations == models.spec(name).num_operations
    assert (graph.durations_s > 0).all()


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        (lambda model: model.to("cpu"), "float32"),
        (lambda model: model.bfloat16(), "bfloat16"),
        (lambda model: model.double().half(), "float16"),
    ],
)
def test_a_model_that_is_converted_while_it_is_built_is_derived(convert, dtype):
    def setup():
        embedding, output = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        output.weight = embedding.weight
        model = nn.Sequential(embedding, nn.LayerNorm(4), output)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)  # knows the parameters from before
        batch = torch.randint(7, (5,)), torch.randint(7, (5,))
        return convert(model), batch, lambda x, y: nn.functional.cross_entropy(x.float(), y), optimizer

    with fake():
        derived = derive(make_step(*setup()), device="v100")
    assert set(derived.parameter_dtypes) == {dtype}
    assert rows_of(derived) == rows_of(profile(*setup(), steps=1, warmup=1))


class Cast(nn.Module):
    """Autocasts its products, as mixed precision does, on the device's kind that it is told."""

    def __init__(self, kind, dtype):
        super().__init__()
        self.layers, self.kind, self.dtype = perceptron(), kind, dtype

    def forward(self, x):
        with torch.autocast(self.kind, self.dtype):
            return self.layers(x)


def narrow_step(made):
    if made in ("cpu", "cuda"):
        model, batch = Cast(made, torch.bfloat16), classified()
    else:
        model = perceptron().to(made)
        batch = classified()[0].to(made), classified()[1]
    return make_step(model, batch, total, torch.optim.SGD(model.parameters(), lr=0.1))


UNKNOWN = (
    "bfloat16 matrix products are taken at float32's speed: whether computing is too long or too short on"
    " a {} is not known; record a trace instead"
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("made", "device", "precision", "unknown"),
    [
        (torch.float32, "h100", "tf32", ""),
        ("cpu", "h100", "tf32, bfloat16 as the model has it", ""),
        ("cuda", "h100", "tf32, bfloat16 as the model has it", ""),
        (torch.bfloat16, "a100", "tf32, bfloat16 as the model has it", ""),
        (torch.float16, "v100", "fp32, float16 as the model has it", ""),
        (torch.bfloat16, "v100", "fp32, bfloat16 as the model has it", UNKNOWN.format("v100")),
        (torch.bfloat16, "k80", "fp32", UNKNOWN.format("k80")),
        (torch.float64, "a100", "tf32", UNKNOWN.format("a100").replace("bfloat16", "float64")),
    ],
)
def test_a_step_says_which_numbers_it_multiplies_and_what_is_not_known_of_them(
    made, device, precision, unknown
):
    init = torch.amp.autocast.__init__
    graph = derive(narrow_step(made), device=device)
    assert graph.precision == precision
    assert graph.caveat.endswith(unknown)
    assert ("is not known" in graph.caveat) == bool(unknown)
    assert torch.amp.autocast.__init__ is init


def wide_step(batch_size=256):
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(batch_size, 2048), torch.randn(batch_size, 2048)
    return make_step(model, batch, nn.functional.mse_loss, optimizer)


def test_each_precision_has_its_speed_and_gradients_their_bytes():
    with fake():
        steps = {each: derive(wide_step(8192), device=Target("a100", precision=each)) for each in PRECISIONS}
    seconds = {each: graph.durations_s.sum() for each, graph in steps.items()}
    assert seconds["fp32"] > 3 * seconds["tf32"] > 3 * seconds["amp"] > 3 * seconds["bf16"] > 0
    assert seconds["bf16"] == pytest.approx(seconds["fp16"])
    widths = {each: graph.parameter_bytes.max() / 2048**2 for each, graph in steps.items()}
    assert widths == {"fp32": 4, "tf32": 4, "amp": 4, "bf16": 2, "fp16": 2}  # amp keeps master parameters
    assert [graph.precision for graph in steps.values()] == list(steps)


def test_a_precision_without_units_for_it_is_refused():
    said = "precision bf16: v100 has no units for it; give one of: fp32, amp, fp16"
    with pytest.raises(HocketError, match=said):
        derive(wide_step(), device=Target("v100", precision="bf16"))


def test_converting_leaves_the_callers_model_and_batch():
    for real in (True, False):
        with nullcontext() if real else fake():
            setup = convolutional()
        step = make_step(*setup)
        derive(step, device=Target("a100", precision="bf16", channels_last=True))
        assert {each.dtype for each in setup[0].parameters()} == {torch.float32}
        assert setup[1][0].is_contiguous()
        assert derive(step, device="a100").parameter_dtypes[0] == "float32"


class Normal(nn.Module):
    """Layer normalization between two layers, and softmax."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.norm(self.first(x))).softmax(-1)


def test_autocast_takes_in_float32_what_it_does_on_gpus():
    calls = []

    def seen(func, args, kwargs, result):
        calls.append(call_of(func, args, kwargs, result))

    step = make_step(Normal(), (torch.randn(4, 8), torch.randn(4, 8)), nn.functional.mse_loss, None)
    record_fake(step, seen, precision="amp")
    types = {call.name: {each.dtype for each in call.args if isinstance(each, SeenTensor)} for call in calls}
    assert types["addmm"] == {"float16"}
    assert types["native_layer_norm"] == types["_softmax"] == types["mse_loss"] == {"float32"}


def test_what_a_compiler_fuses_does_not_reach_memory():
    class Pointwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4096))

        def forward(self, x):
            return ((x * self.scale).sin().cos() + 1).tanh()

    with fake():
        step = make_step(Pointwise(), (torch.randn(65536, 4096), torch.zeros(())), total, None)
    plain, fused = (derive(step, device=Target("a100", compile=each)) for each in (False, True))
    assert fused.precision == "tf32, compiled"
    assert 0.2 < fused.durations_s.sum() / plain.durations_s.sum() < 0.7
    assert "nothing that was compared had torch.compile, as this step has" in fused.caveat
    half = derive(step, device=Target("h100", precision="bf16"))
    assert (
        f"fits without a card were up to {half.expected_error:.0%} off" in half.caveat
    )  # what ranges rest on


def test_many_small_operations_take_the_programs_time():
    graph = derive(make_step(*convolutional()), device="h100")
    assert "the program starts operations slower than h100 runs them" in graph.caveat


def test_a_derived_step_carries_the_share_it_may_be_off_by_and_none_where_it_is_not_known():
    step = make_step(*convolutional())

    def error(device, precision=None):
        return derive(step, device=Target(device, precision=precision)).expected_error

    # A V100 in float32 has figures of its own, an H200 has none; of AMD's cards none was fitted.
    family = FAMILY_ERRORS["convolutions"].nine_of_ten
    assert 0.06 < error("v100", "fp32") == family < error("h200", "amp") == 0.29
    assert error("mi300x") == error("p100", "fp32") == 0.0
