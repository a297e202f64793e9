"""Watching a loop: the step is the one that a profile of a factory finds, and training is left alone."""

import logging
import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import backward as torchs_backward
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.modules import module as modules
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.checkpoint import checkpoint

import hocket
from hocket.errors import HocketError
from hocket.graph import load_step
from hocket.profiler import profile, watching
from hocket.profiler._timer import PlainClock
from tests.unit.profiler.rows import classified, perceptron, rows_of

STEPS = 2
NEEDED = 3 + 1 + 2 * STEPS


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    for handle in list(watching._watched):
        handle.stop()
    perceptron()(torch.zeros(2, 4))  # the next forward pass takes the last hooks away
    assert not modules._global_forward_pre_hooks
    assert not modules._global_forward_hooks
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks
    assert torch.autograd.backward is torchs_backward
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "step.json"


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)


def train(model, optimizer, steps=NEEDED, *, batch_size=2, accumulate=1, between=lambda: None):
    for _ in range(steps):
        for _ in range(accumulate):
            features, labels = classified(batch_size)
            loss = cross_entropy(model(features + 0.0), labels)
            loss.backward()
        between()
        optimizer.step()
        optimizer.zero_grad()


def test_a_loops_step_is_a_factorys(path):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer, NEEDED - 1)
    assert not handle.is_over
    assert not path.exists()
    train(model, optimizer, 1)
    assert handle.is_over
    assert handle.error is None
    graph = load_step(path)
    expected = profile(model, classified(), cross_entropy, optimizer, steps=1, warmup=1)
    assert rows_of(graph) == rows_of(handle.graph) == rows_of(expected)
    assert (graph.model, graph.batch_size, graph.num_samples, graph.device) == ("Sequential", 2, STEPS, "cpu")
    assert (graph.durations_s > 0).all()


def test_training_is_bit_for_bit_what_it_was(path):
    def trained(watched):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3))
        optimizer = sgd(model)
        if watched:
            hocket.watch(model, optimizer, path, steps=STEPS)
        train(model, optimizer, NEEDED + 2, batch_size=8, accumulate=2)
        return model.state_dict()

    watched, plain = trained(True), trained(False)
    assert path.exists()
    assert all(torch.equal(watched[key], plain[key]) for key in plain)


def test_gradients_summed_over_batches_are_one_step(path):
    model = perceptron()
    optimizer = sgd(model)
    hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer, accumulate=3, between=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    graph = load_step(path)
    assert graph.batch_size == 6
    rows = rows_of(graph)
    assert [name for name in rows if name.endswith(("0/addmm", "0/addmm.2", "0/addmm.3"))] == [
        *("forward/0/addmm", "forward/0/addmm.2", "forward/0/addmm.3"),
    ]
    assert not any("randn" in name or name.startswith("forward/add") for name in rows)  # data
    produced = {parameter: name for name, (_, _, produces) in rows.items() for parameter in produces}
    assert set(produced) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(name.endswith("add_.2") for name in produced.values())  # the third adds for the second time
    clipping = [name for name in rows if "norm" in name]
    assert clipping
    assert all(name.startswith("update/") for name in clipping)


def test_an_evaluation_and_a_last_smaller_batch_are_left_out(path):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(NEEDED):
        train(model, optimizer, 1)
        model.eval()
        with torch.no_grad():
            model(torch.randn(7, 4))
        model.train()
        train(model, optimizer, 1)
        train(model, optimizer, 1, batch_size=1)
        if handle.is_over:
            break
    assert handle.error is None
    assert handle.graph.batch_size == 2
    expected = profile(model, classified(), cross_entropy, optimizer, steps=1, warmup=1)
    assert rows_of(load_step(path)) == rows_of(expected)


def test_steps_that_never_are_alike_are_said(path, caplog):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for k in range(60):
        train(model, optimizer, 1, batch_size=1 + k)
    assert str(handle.error) == (
        "too many steps differ: some consist of forward passes of 17 examples and 1 backward passes"
    )
    assert not path.exists()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "is not written, training goes on: too many steps differ" in caplog.text


def test_steps_that_run_other_operations_are_said(path):
    class Alternating(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x).relu() if self.calls % 2 else self.layer(x).tanh()

    model = Alternating()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer, 60)
    assert handle.error is None  # each second step is like the recorded one
    names = rows_of(load_step(path))
    assert ("forward/relu" in names) != ("forward/tanh" in names)


def test_steps_that_a_grad_scaler_skips_do_not_mislead(path):
    model = perceptron()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # the first updates are skipped
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(60):
        features, labels = classified()
        with torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(model(features), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert handle.error is None
    rows = rows_of(load_step(path))
    assert any("non_finite_check" in name and name.startswith("update/") for name in rows)
    assert {p for _, _, produces in rows.values() for p in produces} == dict(model.named_parameters()).keys()


def test_a_closure_that_is_called_once(path):
    model = perceptron()
    optimizer = sgd(model)
    features, labels = classified()

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(features), labels)
        loss.backward()
        return loss

    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(NEEDED):
        optimizer.step(closure)
    assert handle.error is None
    expected = profile(model, classified(), cross_entropy, optimizer, steps=1, warmup=1)
    assert rows_of(load_step(path)) == rows_of(expected)


def test_a_closure_that_is_called_several_times_is_refused(path):
    model = perceptron()
    features, labels = classified()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(features), labels)
        loss.backward()
        return loss

    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(3):
        optimizer.step(closure)
    assert str(handle.error).startswith("LBFGS calls the model several times in a step")


def test_a_checkpoint_that_recomputes(path):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = perceptron()

        def forward(self, x):
            return checkpoint(self.layers, x, use_reentrant=False)

    model = Checkpointed()
    optimizer = sgd(model)
    hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer)
    expected = profile(model, classified(), cross_entropy, optimizer, steps=1, warmup=1)
    assert rows_of(load_step(path)) == rows_of(expected)
    assert "backward/layers.0/addmm" in rows_of(expected)


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("view", [False, True])
def test_ddp_is_measured_without_its_exchange(alone, path, tmp_path, view, accumulate):
    def watched(wrap, path):
        torch.manual_seed(1)
        module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        model = wrap(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        handle = hocket.watch(model, optimizer, path, steps=STEPS)
        for _ in range(NEEDED):
            optimizer.zero_grad(set_to_none=False)  # as the views of a bucket need it
            train(model, optimizer, 1, batch_size=8, accumulate=accumulate)
        assert handle.error is None
        return rows_of(load_step(path))

    wrapped = watched(lambda m: DistributedDataParallel(m, gradient_as_bucket_view=view), path)
    plain = watched(lambda m: m, tmp_path / "plain.json")
    assert wrapped == plain


def test_the_wait_for_an_exchange_is_no_part_of_a_step(alone, path, monkeypatch):
    events, under_way = [], []

    def exchange(_state, bucket):
        arrived = torch.futures.Future()
        under_way.append((arrived, bucket.buffer()))
        late = threading.Timer(
            20.0, lambda: arrived.done() or (events.append("late"), arrived.set_result(None))
        )
        late.daemon = True
        late.start()
        return arrived.then(lambda _: bucket.buffer())

    def pause(_clock):
        events.append("pause")
        arrived, _ = under_way.pop()  # what DDP is about to wait for
        arrived.set_result(None)

    monkeypatch.setattr(PlainClock, "pause", pause)
    monkeypatch.setattr(PlainClock, "resume", lambda _clock: events.append("resume"))
    model = DistributedDataParallel(perceptron())
    model.register_comm_hook(None, exchange)
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer, 3)  # warming up, in plain steps
    handle.stop()
    assert events == ["pause", "resume"] * 3


def test_two_optimizers_are_refused(path):
    generator, critic = nn.Linear(3, 4), perceptron()
    of_generator, of_critic = sgd(generator), sgd(critic)
    handle = hocket.watch(critic, of_critic, path, steps=STEPS)
    for _ in range(2):
        critic(torch.randn(2, 4)).sum().backward()
        of_critic.step()
        critic(generator(torch.randn(2, 3))).sum().backward()
        of_generator.step()
    assert "SGD steps in the middle of a step of the SGD of Sequential; only steps of one" in str(
        handle.error
    )


def test_another_optimizer_of_its_own_model_is_none_of_it(path):
    one, other = perceptron(), perceptron()
    of_one, of_other = sgd(one), sgd(other)
    handle = hocket.watch(one, of_one, path, steps=STEPS)
    for _ in range(NEEDED):
        train(one, of_one, 1)
        train(other, of_other, 1)
    assert handle.error is None
    expected = profile(one, classified(), cross_entropy, of_one, steps=1, warmup=1)
    assert rows_of(load_step(path)) == rows_of(expected)


def test_errors_of_the_training_pass_through(path):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer, 4)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model(torch.zeros(2, 9))
    train(model, optimizer, NEEDED)
    assert handle.error is None
    expected = profile(model, classified(), cross_entropy, optimizer, steps=1, warmup=1)
    assert rows_of(load_step(path)) == rows_of(expected)


def test_a_mode_of_the_scripts_own_is_said(path):
    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    with Own():
        train(model, optimizer, 2)
    assert str(handle.error) == "operations are seen by a Own; leave it while steps are measured"


def test_a_step_in_another_thread_is_said(path):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    cross_entropy(model(classified()[0]), classified()[1]).backward()
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    thread.join()
    assert str(handle.error).startswith("the optimizer steps in another thread than the model's")


def test_a_place_that_goes_away_does_not_end_training(tmp_path, caplog):
    folder = tmp_path / "folder"
    folder.mkdir()
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, folder / "step.json", steps=STEPS)
    folder.rmdir()
    train(model, optimizer, NEEDED + 1)
    assert handle.is_over
    assert "does not exist; create it first" in str(handle.error)


def test_a_model_that_is_distributed_later_is_said(path):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    model.hocket = object()
    train(model, optimizer, 1)
    assert str(handle.error).startswith("the model is one of hocket.distribute")


def test_it_can_be_stopped(path):
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer, 5)
    handle.stop()
    train(model, optimizer, NEEDED)
    assert handle.is_over
    assert handle.graph is handle.error is None
    assert not path.exists()


def test_one_line_is_logged(path, caplog):
    caplog.set_level(logging.INFO, logger="hocket")
    model = perceptron()
    optimizer = sgd(model)
    hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer)
    record, *caveat = caplog.records
    assert all("measure again" in each.message for each in caveat)  # other tests use the machine, too
    assert record.getMessage().startswith(f"{path}: 26 operations, 4 parameters, batch size 2; they sum to ")


def test_a_model_that_is_sharded_later_is_said(alone, path):
    model = perceptron()
    handle = hocket.watch(model, sgd(model), path)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    train(model, sgd(model), 2)
    assert str(handle.error).startswith("the model's parameters are sharded (DTensor")
    assert "hocket profile FILE.py:FUNCTION" in str(handle.error)
    assert not path.exists()


def test_parameters_that_come_later_are_said(path):
    model = perceptron()
    handle = hocket.watch(model, sgd(model), path)
    model[0] = nn.Linear(4, 5)
    train(model, sgd(model), 2)
    assert str(handle.error) == (
        "'0.weight' has come to the Sequential since hocket.watch was called; call it once the model and its"
        " optimizer are as they train"
    )


def test_ranks_other_than_0_do_not_watch(path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    model = perceptron()
    assert hocket.watch(model, sgd(model), path) is None
    assert not watching._watched


class Sharded(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.weight.device_mesh = "mesh"


def compiled():
    model = perceptron()
    model[0]._compiled_call_impl = object()  # what nn.Module.compile() leaves
    return model


def distributed():
    model = perceptron()
    model.hocket = object()
    return model


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: len, "model is a builtin_function_or_method; pass a torch.nn.Module"),
        (
            compiled,
            "a compiled model hides its operations; measure it uncompiled, as hocket profile SCRIPT.py does",
        ),
        (distributed, "the model is one of hocket.distribute, which measures it by itself; save"),
        (lambda: DataParallel(perceptron()), "a model in DataParallel is computed elsewhere in part"),
        (Sharded, "the model's parameters are sharded"),
        (lambda: perceptron().requires_grad_(False), "Sequential has no parameter to train"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "'0.weight' is lazy and has no shape yet"),
        (lambda: perceptron()[0], "the optimizer has 2 parameters that Linear has not; pass the module that"),
    ],
)
def test_a_model_that_cannot_be_watched_is_refused(path, make, said):
    model = make()
    whole = perceptron()
    if isinstance(model, nn.Linear):
        whole[0] = model
    parameters = whole.parameters() if isinstance(model, nn.Linear) or model is len else model.parameters()
    with pytest.raises(HocketError) as caught:
        hocket.watch(model, torch.optim.SGD(parameters, 0.1), path)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert not watching._watched


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": [1]}, "optimizer is a list; pass one torch.optim.Optimizer"),
        ({"steps": 0}, "steps=0 and batch_size=None must each be at least 1"),
        ({"batch_size": 0}, "steps=8 and batch_size=0 must each be at least 1"),
        ({"path": "/no/such/folder/step.json"}, "the folder '/no/such/folder' does not exist"),
    ],
)
def test_wrong_arguments_are_refused(path, changes, said):
    model = perceptron()
    with pytest.raises(HocketError, match=said.replace("[", r"\[")):
        hocket.watch(**({"model": model, "optimizer": sgd(model), "path": path} | changes))
    assert not watching._watched


@pytest.mark.parametrize("wrap", [False, True])
def test_where_nothing_is_compiled_a_model_to_compile_is_watched(path, monkeypatch, wrap):
    class Optimized(nn.Module):
        def __init__(self, model):
            super().__init__()
            self._orig_mod = model

        def forward(self, *args):
            return self._orig_mod(*args)

    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    model = Optimized(perceptron()) if wrap else perceptron()
    if not wrap:
        model[0]._compiled_call_impl = model[0]._call_impl
    optimizer = sgd(model)
    hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer)
    assert load_step(path).parameter_names[0] == "0.weight"


class OfOneLoss(nn.Module):
    """Loses every operation behind its forward pass where the dispatcher is put back at its end."""

    def __init__(self):
        super().__init__()
        self.layers = perceptron()

    def forward(self, features, labels):
        return cross_entropy(self.layers(features), labels)


@pytest.fixture
def nothing_compiled(monkeypatch):
    """What TORCH_COMPILE_DISABLE=1 says to a new process."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    with torch._dynamo.config.patch(disable=True):
        yield


def watched_rows(path, model, called):
    """The rows of a loop that clips and calls ``called``."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(NEEDED):
        called(*classified()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return rows_of(load_step(path)) if handle.error is None else str(handle.error)


@pytest.mark.slow  # importing the compiler takes seconds
@pytest.mark.parametrize("how", ["module", "wrapped", "passed", "part"])
def test_what_is_left_uncompiled_is_watched_as_if_it_had_no_wrapper(path, nothing_compiled, how):
    plain = OfOneLoss()
    expected = watched_rows(path, plain, plain)
    path.unlink()
    model = OfOneLoss()
    called = model
    if how in ("wrapped", "passed"):
        called = torch.compile(model)
    else:
        (model if how == "module" else model.layers).compile()
    found = watched_rows(path, called if how == "passed" else model, called)
    assert found == expected
    assert any(name.startswith("update/") for name in found)
    if how == "module":
        assert model._compiled_call_impl is not None  # put back


@pytest.mark.slow
def test_a_function_that_hides_what_comes_behind_it_is_refused(path, nothing_compiled):
    model = OfOneLoss()
    said = watched_rows(path, model, torch.compile(lambda *batch: model(*batch)))
    assert said.startswith("what torch.compile made calls OfOneLoss, and operations behind that call are not")
    assert not path.exists()


class Unseen(torch.optim.Optimizer):
    """Updates without an operator of torch that is seen, as extensions in C++ do."""

    @torch.no_grad()
    def step(self):
        with _disable_current_modes():
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad, alpha=0.1)


def test_a_step_whose_update_is_not_seen_makes_no_file(path):
    model = perceptron()
    optimizer = Unseen(model.parameters(), {})
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer)
    assert str(handle.error).startswith("no operation of Unseen's step is seen")
    assert not path.exists()


def test_a_step_whose_gradients_come_from_nowhere_makes_no_file(path, monkeypatch):
    def unseen(*args, **kwargs):
        with _disable_current_modes():
            torchs_backward(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "backward", unseen)
    model = perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(model, optimizer)
    assert str(handle.error).startswith("no operation of the backward pass is seen before the gradient of")
    assert not path.exists()


def test_one_loop_at_a_time(path):
    model = perceptron()
    hocket.watch(model, sgd(model), path)
    with pytest.raises(HocketError, match="another loop is being watched"):
        hocket.watch(model, sgd(model), path)


def test_steps_of_another_model_are_said(path):
    model, trained = perceptron(), perceptron()
    optimizer = sgd(model)
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    train(trained, optimizer, 4)
    assert str(handle.error).startswith(
        "the SGD steps and no call of the model is seen: it is another model's"
    )


@pytest.mark.slow  # the compiler takes seconds
@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        (lambda model, loss: (torch.compile(model, backend="aot_eager"), loss), None),
        (
            lambda model, loss: (torch.compile(lambda x: model(x), backend="aot_eager"), loss),
            "the SGD steps and no call of the model is seen",
        ),
        (
            lambda model, loss: (model, torch.compile(loss, backend="aot_eager")),
            "operations of Sequential or its loss are compiled, and such are not seen; measure it uncompiled",
        ),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_what_is_compiled_is_refused_and_trains_on(path, compiled, said, warm):
    model = perceptron()
    optimizer = sgd(model)
    called, loss = compiled(model, cross_entropy)

    def step():
        features, labels = classified()
        loss(called(features), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    if said is None:
        with pytest.raises(HocketError, match="a compiled model hides its operations"):
            hocket.watch(called, optimizer, path)
        return
    if warm:
        step()
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(NEEDED + 1):
        step()
    torch._dynamo.reset()
    assert str(handle.error).startswith(said)
    assert not path.exists()


@pytest.mark.slow
def test_a_compiled_update_is_refused_and_another_compiled_function_is_not(path):
    model = perceptron()
    optimizer = sgd(model)
    scaled = torch.compile(lambda x: (2 * x).sin(), backend="aot_eager")
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(NEEDED + 1):
        features, labels = classified()
        cross_entropy(model(scaled(features)), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert handle.error is None
    assert path.exists()
    update = torch.compile(optimizer.step, backend="aot_eager")
    handle = hocket.watch(model, optimizer, path, steps=STEPS)
    for _ in range(NEEDED + 1):
        features, labels = classified()
        cross_entropy(model(features), labels).backward()
        update()
        optimizer.zero_grad()
    torch._dynamo.reset()
    assert str(handle.error).startswith("operations of Sequential or its loss are compiled")
