"""Training with parameter servers: the same numbers as one process, in every mode, in the planned order."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import torch
from torch import nn

from hocket.graph import Plan, Pull, Push
from hocket.launch import Rule
from hocket.runtime.ps.wire.transport import Header, Kind
from tests.multiprocess.serving_setups import (
    OPTIMIZERS,
    STEPS,
    SYNC2,
    Layers,
    alone,
    close,
    equal,
    made,
    step,
    trained,
)
from tests.multiprocess.setups import Plain, batch
from tests.serving import client_of, served, wait_until


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


@pytest.mark.slow
@pytest.mark.parametrize("rule", [SYNC2, Rule(workers=2, barrier="parameter"), Rule(workers=2, mode="async")])
def test_grpc_computes_the_same(rule: Rule) -> None:
    pytest.importorskip("grpc")
    expected = alone(OPTIMIZERS["momentum"]).state_dict()
    models = [made(Layers), Layers()]
    with served(rule, servers=2, transport="grpc") as job:
        states = trained(job, models, OPTIMIZERS["momentum"], policy="tac")
    assert job.statuses == [0, 0]
    for server in job.servers:
        counts = server.core.ledger.counts
        assert counts.applied == counts.received == 2 * STEPS * len(server.core.shard.parameters)
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
        client = client_of(model)
        for number in range(STEPS):
            step(model, optimizer, *batch(worker, number))
            if number == STEPS // 2:  # worker 0 has told its plan; the word may still be on its way
                wait_until(lambda: client.published_plan is not None or model.hocket.plan.policy == policy)
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


@pytest.mark.slow
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
        counts = server.core.ledger.counts
        assert counts.received == counts.applied == workers * steps * len(server.core.shard.parameters)
        assert counts.dropped == 0
        for p in server.core.shard.parameters:
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
        (connection,) = client_of(model).connections
        send = connection._transport.send
        unused = {frame.tag for frame in connection.pushes if frame.name.startswith("unused")}

        def slowly(header: Header, payload: torch.Tensor | None = None) -> None:
            if header.kind is Kind.PUSH and header.tag in unused:
                time.sleep(0.05)
            send(header, payload)

        connection._transport.send = slowly
        for number in range(5):
            step(model, optimizer, *batch(worker, number))
        model.hocket.detach()

    with served(Rule(mode="async", barrier="parameter")) as job:
        job.on_workers(work)
    assert job.statuses == [0]
    (server,) = job.servers
    assert server.core.ledger.counts.applied == 5 * 3


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
    counts, versions = server.core.ledger.counts, server.core.ledger.versions
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
    assert torch.equal(server.core.values.shard.state[0], expected)


class Mixed(nn.Module):
    """Parameters of several types, one of them a single number, one complex, and a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.coarse = nn.Linear(192, 8, dtype=torch.bfloat16)
        self.fine = nn.Linear(8, 5, dtype=torch.float64)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.stretch = nn.Parameter(torch.polar(torch.ones(4), torch.ones(4)))
        self.register_buffer("turns", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.flatten(1).view(-1, 24, 4, 2))
        turned = torch.view_as_real(pairs * self.turns * self.stretch)
        return self.fine(self.coarse(turned.flatten(1).bfloat16()).double()) * self.scale


@pytest.mark.slow
def test_parameters_of_several_types() -> None:
    expected = alone(OPTIMIZERS["adam"], steps=6, workers=1, make=Mixed).state_dict()
    with served(Rule(mode="async"), servers=2) as job:
        (state,) = trained(job, [made(Mixed)], OPTIMIZERS["adam"], steps=6)
    assert equal(state, expected)
    with served(SYNC2, servers=3) as job:
        states = trained(job, [made(Mixed), Mixed()], OPTIMIZERS["adam"], steps=6)
    assert equal(states[0], states[1])
