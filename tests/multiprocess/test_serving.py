"""Training with parameter servers: the same numbers as one process, in every mode, in the planned order."""

from __future__ import annotations

import copy
import functools
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Pull, Push
from hocket.launch import Rule
from hocket.runtime.ps.spec import spec_of
from hocket.runtime.ps.transport import Header, Kind
from tests.multiprocess.setups import Plain, Small, batch
from tests.serving import Served, served

STEPS = 20
SYNC2 = Rule(workers=2)

Make = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.05),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
}


class Layers(nn.Module):
    """Without BatchNorm: what two workers compute is what one computes of both batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 16), nn.Tanh(), nn.Linear(16, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def both(number: int, workers: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """What the workers' batches of a step are together."""
    batches = [batch(worker, number) for worker in range(workers)]
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def alone(optimize: Make, steps: int = STEPS, workers: int = 2, make: Any = Layers) -> nn.Module:
    """Trained in one process on all batches."""
    model = made(make)
    optimizer = optimize(model)
    for number in range(steps):
        step(model, optimizer, *both(number, workers))
    return model


def trained(
    job: Served, models: list[nn.Module], optimize: Make, steps: int = STEPS, **options: Any
) -> list[dict[str, torch.Tensor]]:
    """Each worker's state dict after ``steps``; ``models``: one a worker."""

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = models[worker]
        optimizer = optimize(model)
        job.train(worker, model, optimizer, **options)
        for number in range(steps):
            step(model, optimizer, *batch(worker, number))
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    return job.on_workers(work)


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 1e-6) -> bool:
    return all(torch.allclose(a[k], b[k], rtol=0, atol=tolerance) for k in a)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("servers", [1, 2])
def test_sync_is_one_process_on_the_batches_together(optimizer: str, servers: int) -> None:
    expected = alone(OPTIMIZERS[optimizer]).state_dict()
    models = [made(Layers), Layers()]  # the second one begins otherwise
    with served(SYNC2, servers) as job:
        states = trained(job, models, OPTIMIZERS[optimizer])
    assert job.statuses == [0] * servers
    assert equal(states[0], states[1])
    assert close(states[0], expected)


@pytest.mark.parametrize("rule", [SYNC2, Rule(workers=2, barrier="parameter"), Rule(workers=2, mode="async")])
def test_grpc_computes_the_same(rule: Rule) -> None:
    pytest.importorskip("grpc")
    expected = alone(OPTIMIZERS["momentum"]).state_dict()
    models = [made(Layers), Layers()]
    with served(rule, servers=2, transport="grpc") as job:
        states = trained(job, models, OPTIMIZERS["momentum"], policy="tac")
    assert job.statuses == [0, 0]
    for server in job.servers:
        counts = server.exchange.ledger.counts
        assert counts.applied == counts.received == 2 * STEPS * len(server.exchange.shard.parameters)
    if rule.mode == "sync":
        assert equal(states[0], states[1])
        assert close(states[0], expected)


@pytest.mark.parametrize("policy", ["reverse", "random", "default", "tac", "ibatch", "layerwise"])
def test_no_order_changes_what_is_computed_and_every_order_is_kept(policy: str) -> None:
    expected = alone(OPTIMIZERS["momentum"]).state_dict()
    models = [made(Layers), made(Layers)]

    def work(worker: int) -> tuple[dict[str, torch.Tensor], Any]:
        model = models[worker]
        optimizer = OPTIMIZERS["momentum"](model)
        job.train(worker, model, optimizer, policy)
        for number in range(STEPS):
            step(model, optimizer, *batch(worker, number))
        state = copy.deepcopy(model.state_dict())
        shown = model.hocket.plan.policy, model.hocket.settled, model.hocket.order
        assert f"plan '{policy}', in force" in model.hocket.explain()
        model.hocket.detach()
        return state, shown

    with served(SYNC2, servers=2) as job:
        found = job.on_workers(work)
    for state, (planned, settled, order) in found:
        assert close(state, expected)
        assert (planned, settled) == (policy, True)
        assert order.transfers["pull"] > 0
        assert order.out_of_order("pull") == 0.0
        assert order.transfers["push"] > 0


def test_slices_and_a_barrier_per_parameter_compute_the_same() -> None:
    expected = alone(OPTIMIZERS["adam"]).state_dict()
    models = [made(Layers), made(Layers)]
    names = [name for name, _ in models[0].named_parameters()]
    plan = Plan(
        policy="sliced",
        model="test",
        architecture="ps",
        pulls=tuple(Pull(parameters=(name,), priority=k, chunks=3) for k, name in enumerate(names)),
        pushes=tuple(Push(parameters=(name,), chunks=3) for name in names),
        compute_order=None,
        barrier="parameter",
    )
    with served(Rule(workers=2, barrier="parameter"), servers=2) as job:
        states = trained(job, models, OPTIMIZERS["adam"], plan=plan)
    assert close(states[0], expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("barrier", ["step", "parameter"])
def test_one_asynchronous_worker_is_sequential_training_bit_by_bit(optimizer: str, barrier: Any) -> None:
    expected = alone(OPTIMIZERS[optimizer], workers=1, make=Plain).state_dict()
    with served(Rule(mode="async", barrier=barrier), servers=2) as job:
        (state,) = trained(job, [made(Plain)], OPTIMIZERS[optimizer])
    assert equal(state, expected)


class Flat(nn.Module):
    """Two matrices, which every optimizer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(192, 8, bias=False), nn.Tanh(), nn.Linear(8, 5, bias=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ASGD", {"t0": 2}),
        ("Adadelta", {"foreach": True}),
        ("Adafactor", {}),
        ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.1}),
        ("Adam", {"amsgrad": True}),
        ("Adam", {"foreach": True}),
        ("Adam", {"fused": True}),
        ("AdamW", {"maximize": True}),
        ("Adamax", {}),
        ("Muon", {}),
        ("NAdam", {"decoupled_weight_decay": True}),
        ("RAdam", {}),
        ("RMSprop", {"centered": True, "momentum": 0.9}),
        ("Rprop", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True, "foreach": True}),
    ],
)
def test_every_optimizer_steps_on_servers_as_it_does_alone(name: str, options: dict[str, Any]) -> None:
    """With settings of a group's own, and rates that change from step to step."""
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")

    def train(worker: int, model: nn.Module, whole: bool) -> dict[str, torch.Tensor]:
        first, last = model.parameters()
        groups = [{"params": [first]}, {"params": [last], "lr": 0.003, "weight_decay": 0.05}]
        optimizer = getattr(torch.optim, name)(groups, lr=0.01, **options)
        if not whole:
            job.train(worker, model, optimizer)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        for number in range(6):
            step(model, optimizer, *batch(worker, number))
            schedule.step()
        kept = optimizer.state_dict()["state"]
        state = copy.deepcopy(model.state_dict())
        if not whole:
            model.hocket.detach()
        return state | {
            f"{k}/{key}": torch.as_tensor(v)
            for k, each in kept.items()
            for key, v in each.items()
            if v is not None
        }

    expected = train(0, made(Flat), True)
    with served(Rule(mode="async"), servers=2) as job:
        (state,) = job.on_workers(lambda worker: train(worker, made(Flat), False))
    assert state.keys() == expected.keys()
    assert equal(state, expected)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(mode="async", workers=3),
        Rule(mode="async", workers=3, barrier="parameter"),
        Rule(mode="async", workers=3, staleness=1),
        Rule(workers=3, barrier="parameter"),
    ],
    ids=["async", "async per parameter", "stale", "sync per parameter"],
)
def test_every_push_is_applied_once(rule: Rule) -> None:
    """Gradients of one and a rate of one: a value says how many updates it has had."""
    workers, steps = 3, 12
    share = 1.0 if rule.mode == "async" else 1.0 / workers

    def work(worker: int) -> None:
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        job.train(worker, model, optimizer)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(1, 3))
            sum(p.sum() for p in model.parameters()).backward()
            optimizer.step()
        model.hocket.detach()

    with served(rule, servers=2) as job:
        job.on_workers(work)
    for server in job.servers:
        counts = server.exchange.ledger.counts
        assert counts.received == counts.applied == workers * steps * len(server.exchange.shard.parameters)
        assert counts.dropped == 0
        for p in server.exchange.shard.parameters:
            assert torch.allclose(p, torch.full_like(p, -steps * workers * share), atol=1e-4)


class Half(nn.Module):
    """Reads neither its first nor its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.unused_first = nn.Linear(192, 5, bias=False)
        self.used = nn.Linear(192, 5, bias=False)
        self.unused_last = nn.Linear(192, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x.flatten(1))


def test_a_step_may_end_while_the_last_one_of_what_it_does_not_read_is_under_way() -> None:
    def work(worker: int) -> None:
        model = made(Half)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        (pair,) = model.hocket._training.client.pairs
        send = pair._transport.send
        unused = {frame.tag for frame in pair.pushes if frame.name.startswith("unused")}

        def slowly(header: Header, payload: torch.Tensor | None = None) -> None:
            if header.kind is Kind.PUSH and header.tag in unused:
                time.sleep(0.05)
            send(header, payload)

        pair._transport.send = slowly
        for number in range(5):
            step(model, optimizer, *batch(worker, number))
        model.hocket.detach()

    with served(Rule(mode="async", barrier="parameter")) as job:
        job.on_workers(work)
    assert job.statuses == [0]
    (server,) = job.servers
    assert server.exchange.ledger.counts.applied == 5 * 3


def test_backup_workers_take_the_first_gradients_and_drop_late_ones() -> None:
    steps = 10

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(steps):
            step(model, optimizer, *batch(worker, number))
        model.hocket.detach()

    with served(Rule(workers=3, backup=1)) as job:
        job.on_workers(work)
    (server,) = job.servers
    counts, versions = server.exchange.ledger.counts, server.exchange.ledger.versions
    assert counts.received == 3 * steps * len(versions)
    assert counts.applied == counts.received - counts.dropped
    # Rounds of two, and some of one or none dropped at the end.
    assert len(set(versions)) == 1
    assert steps <= versions[0] <= 2 * steps


def test_buffers_are_worker_0s() -> None:
    models = [made(Plain), made(Plain)]

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = models[worker]
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(6):
            step(model, optimizer, *batch(worker, number))
        with torch.no_grad():
            model.eval()(batch(0, 50)[0])
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    with served(SYNC2, servers=2) as job:
        states = job.on_workers(work)
    assert equal(states[0], states[1])
    assert states[0]["layers.1.num_batches_tracked"] == 6


class Averaging(nn.Module):
    """Puts a new tensor in its buffer's place in each step; another buffer grows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 5)
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("history", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = averaged(self.average, x)
        self.history = torch.cat([self.history, self.average.sum().view(1)])
        return self.layer(x.flatten(1))


def averaged(before: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return 0.9 * before + 0.1 * x.mean((0, 2, 3))


def test_buffers_that_a_module_replaces_are_worker_0s_too() -> None:
    with served(SYNC2, servers=2) as job:
        states = trained(job, [made(Averaging), made(Averaging)], OPTIMIZERS["sgd"], steps=6)
    expected = torch.zeros(3)
    for number in range(6):
        expected = averaged(expected, batch(0, number)[0])
    for state in states:
        assert torch.equal(state["average"], expected)
        assert len(state["history"]) == 7
    (server, _) = job.servers
    assert torch.equal(server.exchange.values.shard.state[0], expected)


class Mixed(nn.Module):
    """Parameters of several types, one of them a single number, and a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.coarse = nn.Linear(192, 8, dtype=torch.bfloat16)
        self.fine = nn.Linear(8, 5, dtype=torch.float64)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("turns", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = torch.view_as_real(torch.view_as_complex(x.flatten(1).view(-1, 24, 4, 2)) * self.turns)
        return self.fine(self.coarse(turned.flatten(1).bfloat16()).double()) * self.scale


def test_parameters_of_several_types() -> None:
    expected = alone(OPTIMIZERS["adam"], steps=6, workers=1, make=Mixed).state_dict()
    with served(Rule(mode="async"), servers=2) as job:
        (state,) = trained(job, [made(Mixed)], OPTIMIZERS["adam"], steps=6)
    assert equal(state, expected)
    with served(SYNC2, servers=3) as job:
        states = trained(job, [made(Mixed), Mixed()], OPTIMIZERS["adam"], steps=6)
    assert equal(states[0], states[1])


def test_shared_frozen_unused_and_functional_parameters() -> None:
    models = [made(Small), Small()]

    def optimize(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)

    with served(SYNC2, servers=2) as job:
        states = trained(job, models, optimize, steps=8)
    assert equal(states[0], states[1])
    begun = made(Small).state_dict()
    assert torch.equal(states[0]["frozen.weight"], begun["frozen.weight"])
    assert torch.equal(states[0]["unused.weight"], begun["unused.weight"])
    assert not torch.equal(states[0]["attention.out_proj.weight"], begun["attention.out_proj.weight"])


def accumulating(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    optimizer.zero_grad()
    for part in range(2):
        x, y = both(10 * number + part) if whole else batch(worker, 10 * number + part)
        quiet = not whole and part == 0
        with model.hocket.no_sync() if quiet else threading.Lock():
            (functional.cross_entropy(model(x), y) / 2).backward()
    optimizer.step()


def clipping(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    optimizer.zero_grad()
    x, y = both(number) if whole else batch(worker, number)
    functional.cross_entropy(model(x), y).backward()
    clip = nn.utils.clip_grad_norm_ if whole else hocket.clip_grad_norm_
    assert clip(model.parameters() if whole else model, 0.2) > 0.2
    optimizer.step()


def clipping_by_the_largest(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    """With the norm of another order asked for in between."""
    optimizer.zero_grad()
    x, y = both(number) if whole else batch(worker, number)
    functional.cross_entropy(model(x), y).backward()
    if whole:
        nn.utils.clip_grad_norm_(model.parameters(), 0.02, norm_type=torch.inf)
    else:
        hocket.clip_grad_norm_(model, 1e9)
        hocket.clip_grad_norm_(model, 0.02, norm_type=torch.inf)
    optimizer.step()


def twice(model: nn.Module, optimizer: Any, worker: int, number: int, whole: bool) -> None:
    """Two backward passes, both synchronised: gradients leave with the step."""
    optimizer.zero_grad()
    for part in range(2):
        x, y = both(10 * number + part) if whole else batch(worker, 10 * number + part)
        functional.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize("loop", [accumulating, clipping, clipping_by_the_largest, twice])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_loops_that_users_of_one_process_have(loop: Any, optimizer: str) -> None:
    """With a schedule that changes the learning rate after each step."""

    def run(model: nn.Module, worker: int, whole: bool) -> dict[str, torch.Tensor]:
        optimizer_ = OPTIMIZERS[optimizer](model)
        if not whole:
            job.train(worker, model, optimizer_)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer_, 2, gamma=0.7)
        for number in range(10):
            loop(model, optimizer_, worker, number, whole)
            schedule.step()
        state = copy.deepcopy(model.state_dict())
        kept = optimizer_.state_dict()["state"]
        if not whole:
            model.hocket.detach()
        return state | {
            f"{k}/{key}": v for k, each in kept.items() for key, v in each.items() if v is not None
        }

    expected = run(made(Layers), 0, True)
    models = [made(Layers), made(Layers)]
    with served(SYNC2, servers=2) as job:
        states = job.on_workers(lambda worker: run(models[worker], worker, False))
    assert states[0].keys() == expected.keys()
    assert close(states[0], expected)
    assert equal(states[0], states[1])


class Double(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.double())


def test_clipping_is_as_exact_as_the_gradients_are() -> None:
    def run(model: nn.Module, worker: int, whole: bool) -> dict[str, torch.Tensor]:
        optimizer = OPTIMIZERS["momentum"](model)
        if not whole:
            job.train(worker, model, optimizer)
        for number in range(4):
            clipping(model, optimizer, worker, number, whole)
        state = copy.deepcopy(model.state_dict())
        if not whole:
            model.hocket.detach()
        return state

    expected = run(made(Double), 0, True)
    models = [made(Double), made(Double)]
    with served(SYNC2) as job:
        states = job.on_workers(lambda worker: run(models[worker], worker, False))
    assert close(states[0], expected, 1e-13)


def test_training_goes_on_from_a_state_dict() -> None:
    expected = alone(OPTIMIZERS["adam"]).state_dict()
    begun = alone(OPTIMIZERS["adam"], steps=8)
    optimizer = OPTIMIZERS["adam"](made(Layers))
    before = made(Layers)
    first = OPTIMIZERS["adam"](before)
    for number in range(8):
        step(before, first, *both(number))
    saved = copy.deepcopy(first.state_dict())

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = copy.deepcopy(begun) if worker == 0 else Layers()
        mine = OPTIMIZERS["adam"](model)
        if worker == 0:
            mine.load_state_dict(copy.deepcopy(saved))
        job.train(worker, model, mine)
        with pytest.raises(HocketError, match="before hocket"):
            model.load_state_dict(begun.state_dict())
        for number in range(8, STEPS):
            step(model, mine, *batch(worker, number))
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    with served(SYNC2, servers=2) as job:
        states = job.on_workers(work)
    assert optimizer.state_dict()["state"] == {}
    assert close(states[0], expected)


def test_agents_only_pull() -> None:
    model = made(Layers).eval()
    wanted = model(batch(0, 0)[0])

    def work(worker: int) -> list[torch.Tensor]:
        mine = copy.deepcopy(model) if worker == 0 else Layers().eval()
        optimizer = OPTIMIZERS["sgd"](mine)
        job.train(worker, mine, optimizer, "tac")
        with torch.no_grad():
            outputs = [mine(batch(0, 0)[0]) for _ in range(14)]
            deadline_s = time.monotonic() + 10
            while mine.hocket.plan.policy != "tac" and time.monotonic() < deadline_s:
                outputs.append(mine(batch(0, 0)[0]))  # worker 0 plans, and may be behind
        assert mine.hocket.order.transfers["pull"] > 0
        assert mine.hocket.plan.policy == "tac"
        with pytest.raises(HocketError, match="trains nothing"):
            optimizer.step()
        mine.hocket.detach()
        return outputs

    with served(Rule(mode="inference", workers=2), servers=2) as job:
        for outputs in job.on_workers(work):
            assert all(torch.equal(output, wanted) for output in outputs)


def test_workers_that_are_lost_and_come_again_count_every_push_once() -> None:
    """A rate of one and gradients of one: what a value has lost is how many updates it has had."""
    steps, lives = 15, 3

    def train(worker: int, last: int, leave: str) -> None:
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        job.train(worker, model, optimizer)
        for _ in range(last):
            optimizer.zero_grad()
            sum(p.sum() for p in model.parameters() if model(torch.ones(1, 3)) is not None).backward()
            optimizer.step()
        if leave == "finished":
            model.hocket.detach()
            return
        if leave == "in a step":  # what it pushed without a step is not to count
            model(torch.ones(1, 3))
            sum(p.sum() for p in model.parameters()).backward()
        model.hocket._training.client.close()  # as a process that is killed: its connections end

    def work(worker: int) -> None:
        if worker == 1:
            for life in range(lives):
                train(1, 3 + life, "in a step" if life % 2 else "between steps")
                wait_until(lambda: all(1 not in server.exchange.peers for server in job.servers))
        train(worker, steps, "finished")

    with served(Rule(mode="async", workers=2), servers=2) as job:
        job.on_workers(work)
    for server in job.servers:
        exchange = server.exchange
        counts = exchange.ledger.counts
        assert counts.received == counts.applied + counts.dropped
        assert counts.applied == sum(exchange.ledger.versions)
        for version, p in zip(exchange.ledger.versions, exchange.shard.parameters, strict=True):
            assert torch.equal(p, torch.full_like(p, -float(version)))
            committed = 2 * steps + sum(3 + life for life in range(lives))
            # Of the last step before it was lost a worker's gradients may not have got through.
            assert committed - lives <= version <= committed


def wait_until(due: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not due():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_synchronous_job_ends_for_all_when_a_worker_is_lost() -> None:
    errors = {}

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        if worker == 1:
            model.hocket._training.client.close()
            return
        try:
            for number in range(1, 100):
                step(model, optimizer, *batch(worker, number))
        except HocketError as error:
            errors[worker] = str(error)

    with served(SYNC2, servers=2) as job:
        job.on_workers(work)
    assert "ended it: worker 1 is gone in step " in errors[0]
    assert job.statuses == [1, 1]


def test_a_worker_with_fewer_batches_is_named() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(3 + 2 * worker):
            step(model, optimizer, *batch(worker, number))
        model.hocket.detach()

    with (
        served(SYNC2) as job,
        pytest.raises(HocketError, match=r"worker 0 has finished while others go on; .* number of batches"),
    ):
        job.on_workers(work)


def test_a_wait_ends_with_the_jobs_timeout() -> None:
    """The other worker never comes."""

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        try:
            for number in range(3):
                step(model, optimizer, *batch(worker, number))
        finally:
            model.hocket._training.client.close()

    with (
        served(SYNC2, timeout_s=1.0) as job,
        pytest.raises(HocketError, match=r"server 0 did not send 'layers\.0\.weight' within 1 s"),
    ):
        job.on_workers(work, workers=1)


# What is refused.


def refusal(rule: Rule, work: Callable[[Served, int], None]) -> str:
    with served(rule) as job, pytest.raises(HocketError) as refused:
        job.on_workers(functools.partial(work, job))
    return str(refused.value)


def test_gradients_that_are_changed_by_hand_are_refused_where_they_are_summed_up() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        model(batch(worker, 0)[0]).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    assert "hocket.clip_grad_norm_" in refusal(SYNC2, work)


@pytest.mark.parametrize("added", [False, True], ids=["unfrozen", "added"])
def test_parameters_that_are_to_be_trained_later_are_refused(added: bool) -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        last = model.layers[5].requires_grad_(False)
        given = [p for p in model.parameters() if p.requires_grad or not added]
        optimizer = torch.optim.SGD(given, lr=0.05)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))  # frozen, it is no obstacle
        last.requires_grad_(True)
        if added:
            optimizer.add_param_group({"params": list(last.parameters())})
        step(model, optimizer, *batch(worker, 1))

    refused = refusal(Rule(mode="async"), work)
    assert "'layers.5.weight' has a gradient, but was not trained" in refused


def test_weights_that_a_script_changes_are_refused_since_nobody_would_see_them() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(2):
            step(model, optimizer, *batch(worker, number))
            for p in model.parameters():
                p.data.clamp_(-0.01, 0.01)

    assert "'layers.0.weight' was changed between steps" in refusal(Rule(mode="async"), work)


def test_weights_that_are_moved_and_put_back_are_as_they_came() -> None:
    """As sharpness-aware minimisation does: the gradients are those of the weights that were moved."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for number in range(6):
            x, y = batch(0, number)
            functional.cross_entropy(model(x), y).backward()
            parameters = list(model.parameters())
            moves = [0.05 * p.grad for p in parameters]
            with torch.no_grad():
                for p, move in zip(parameters, moves, strict=True):
                    p.add_(move)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, move in zip(parameters, moves, strict=True):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()

    expected, model = made(Layers), made(Layers)
    train(expected, OPTIMIZERS["momentum"](expected))

    def work(worker: int) -> None:
        optimizer = OPTIMIZERS["momentum"](model)
        job.train(worker, model, optimizer)
        train(model, optimizer)
        model.hocket.detach()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert close(model.state_dict(), expected.state_dict(), 1e-5)


class Read(nn.Parameter):
    """A parameter of a class of its own, which cannot tell that it is read."""


def test_whatever_is_read_after_a_step_is_up_to_date() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        seen = []
        for number in range(5):
            step(model, optimizer, *batch(0, number))
            seen.append(model.layers[5].weight.sum().item())
        return seen

    def make() -> nn.Module:
        model = made(Layers)
        model.layers[5].weight = Read(model.layers[5].weight.detach().clone())
        return model

    expected = make()
    wanted = train(expected, OPTIMIZERS["sgd"](expected))

    def work(worker: int) -> list[float]:
        model = make()
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        seen = train(model, optimizer)
        model.hocket.detach()
        return seen

    with served(Rule(mode="async")) as job:
        assert job.on_workers(work) == [wanted]


def test_gradients_that_a_fused_step_would_unscale_are_refused() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        job.train(worker, model, optimizer)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(batch(worker, 0)[0]).sum()).backward()
        scaler.step(optimizer)

    assert "make it without fused" in refusal(Rule(mode="async"), work)


def clamped(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 6) -> None:
    """Gradients changed by hand, by a way that leaves no mark on them."""
    for number in range(steps):
        x, y = batch(0, number)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.grad.data.clamp_(-0.001, 0.001)
        optimizer.step()


def test_gradients_that_are_changed_without_a_mark_count_as_they_are() -> None:
    expected, model = made(Layers), made(Layers)
    clamped(expected, OPTIMIZERS["momentum"](expected))

    def work(worker: int) -> None:
        optimizer = OPTIMIZERS["momentum"](model)
        job.train(worker, model, optimizer)
        clamped(model, optimizer)
        model.hocket.detach()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert equal(model.state_dict(), expected.state_dict())

    def refused(job: Served, worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        clamped(model, optimizer)

    assert "gradients were changed between backward pass and optimizer.step()" in refusal(SYNC2, refused)


def test_backup_workers_leave_no_norm_to_clip_by() -> None:
    def work(job: Served, worker: int) -> None:
        model = made(Layers)
        job.train(worker, model, OPTIMIZERS["sgd"](model))
        model(batch(worker, 0)[0]).sum().backward()
        hocket.clip_grad_norm_(model, 0.1)

    assert "train without --backup" in refusal(Rule(workers=2, backup=1), work)


def test_the_norm_of_gradients_that_are_no_numbers_is_none_either() -> None:
    model = made(Layers)
    optimizer = OPTIMIZERS["sgd"](model)

    def work(worker: int) -> float:
        job.train(worker, model, optimizer)
        (model(batch(worker, 0)[0]).sum() * torch.nan).backward()
        with pytest.raises(RuntimeError, match="is nan, which clips nothing"):
            hocket.clip_grad_norm_(model, 0.1, error_if_nonfinite=True)
        norm = float(hocket.clip_grad_norm_(model, 0.1))
        optimizer.step()
        model.hocket.detach()
        return norm

    with served(Rule(workers=1)) as job:
        (norm,) = job.on_workers(work)
    assert math.isnan(norm)
    assert all(p.isnan().all() for p in model.parameters())


def test_another_model_is_refused() -> None:
    def work(job: Served, worker: int) -> None:
        model = nn.Linear(3, 4 + worker)
        job.train(worker, model, OPTIMIZERS["sgd"](model))

    assert "give every worker the same model" in refusal(SYNC2, work)


def test_optimizers_that_no_server_can_run_are_refused() -> None:
    class Own(torch.optim.SGD):
        pass

    parameters = dict(made(Layers).named_parameters())
    for optimizer in (Own(parameters.values(), lr=0.1), torch.optim.LBFGS(parameters.values())):
        with pytest.raises(HocketError, match=r"a server cannot run .*; it runs torch\.optim's"):
            spec_of(parameters, optimizer, {}, {})


@pytest.mark.slow
def test_a_worker_that_finishes_waits_for_pushes_that_take_long() -> None:
    """As over a slow link: more than any wait of our own for the end."""

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        (pair,) = model.hocket._training.client.pairs
        send = pair._transport.send

        def slowly(header: Any, payload: Any = None) -> None:
            time.sleep(1.0)
            send(header, payload)

        pair._transport.send = slowly
        step(model, optimizer, *batch(worker, 1))
        model.hocket._training.client.finish()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    (server,) = job.servers
    counts = server.exchange.ledger.counts
    assert job.statuses == [0]
    assert counts.received == counts.applied == 2 * len(server.exchange.shard.parameters)
