"""What ranks run for test_delayed.py: training on a device whose work is done later than it is asked for."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from datetime import timedelta

import torch
from torch import nn
from torch.nn import functional

import hocket
from hocket.runtime.observe.device_recorder import DeviceRecorder
from hocket.runtime.transfers.allreduce_cost import ReductionMeasurement
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.training_device import DEVICES
from tests.delayed.install import DelayedDevice, moved
from tests.delayed.streams import Event
from tests.multiprocess import buffer_cases
from tests.multiprocess.halves_cases import LEARNING_STEPS, PLANS, by_hand, clipped, halved_plan, in_halves
from tests.multiprocess.parity_cases import parity
from tests.multiprocess.setups import Plain, Small, batch, plan_at_once, sgd, train
from tests.multiprocess.short_cases import ShortTwins
from tests.multiprocess.training_cases import Branches, unused_parameters
from tests.multiprocess.twins import Twins, sliced_plan

BUFFER_CASES = (
    buffer_cases.changed_in_every_step,
    buffer_cases.evaluation_between,
    buffer_cases.changed_and_then_evaluated,
    buffer_cases.statistics_of_checkpoints,
)
HABITS = ("plainly", "accumulating", "with some unused", "clipped", "scaled")


def here() -> DelayedDevice:
    """The device in force."""
    device = DEVICES["cpu"]
    assert isinstance(device, DelayedDevice)
    return device


def on_one_stream(rank: int) -> list[str]:
    """The usual loop."""
    return train(Twins(Small, sgd, unused=True), rank, 5)


def on_another_stream(rank: int) -> list[str]:
    """The plan changes on another stream than the one on which the model was distributed."""
    twins = Twins(Small, sgd, unused=True)
    streams = here().streams
    distributed = streams.record()
    with streams.on():
        streams.follow(distributed)
        return train(twins, rank, 5)


def read_on_others(rank: int) -> list[str]:
    """Passes that change nothing run on other streams, which training does not follow, and it moves."""
    twins = Twins(_without_buffers, sgd)
    streams, found, shown_at = here().streams, [], []
    trained_on, read = streams.first, streams.record()
    for step in range(6):
        with streams.on(trained_on):
            _train_step(twins, rank, step, read)
            asked = streams.record()
        with streams.on(), torch.no_grad():
            streams.follow(asked)
            shown = [model.eval()(batch(rank, 70)[0]) for model in (twins.ddp, twins.ours)]
            read = streams.record()
        with streams.on(trained_on):
            # As anybody may read them who has trained on this stream, which then has all that is behind.
            if step % 2 and not torch.equal(twins.ddp.module.layers[4].weight, twins.ours.layers[4].weight):
                found.append(f"step {step}: a parameter")
        twins.ddp.train()
        twins.ours.train()
        with streams.on() as trained_on:
            streams.follow(asked)
        shown_at.append((shown, read))
    for shown, read in shown_at:
        streams.wait(read)
        with streams.now():
            if not torch.equal(*shown):
                found.append("an evaluation")
    with streams.on(trained_on):
        return found + twins.differences()


def _without_buffers() -> nn.Module:
    """One whose forward pass changes nothing, so that it need not wait for who reads it elsewhere."""
    model = Plain()
    model.layers[1] = nn.Identity()
    return model


def _train_step(twins: Twins, rank: int, step: int, read: Event) -> None:
    """A step that changes parameters behind ``read``."""
    x, y = batch(rank, step)
    for model, optimizer, _ in twins.each():
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        if model is twins.ours:  # the other is the host's, and comes first
            here().follow(read)
        optimizer.step()


def settled_steps(rank: int, world: int, plan: str) -> list[str]:
    """What has the host wait for the device once the plan stays, on each side of DDP's habits."""
    found = []
    for how in HABITS:
        torch.manual_seed(0)
        model = moved(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 2)))
        spare = moved(nn.Linear(6, 6))
        model.add_module("spare", spare)
        model.forward = lambda x, model=model: model[2](model[1](model[0](x)))  # type: ignore[method-assign]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        made = halved_plan(model) if plan == "halves" else sliced_plan(model, plan)
        hocket.distribute(model, optimizer, plan=made)
        for step in range(9):
            if step == 6:  # the plan stays, and the first passes have shown when buffers change
                here().waits.clear()
            step_by_habit(how, model, optimizer, torch.randn(3, 6))
        found += [f"{how}: {wait}" for wait in here().waits]
        model.hocket.detach()
    return found


def step_by_habit(how: str, model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    if how == "accumulating":
        with model.hocket.no_sync():
            model(x).square().mean().backward()
    loss = model(x).square().mean()
    loss.backward()
    if how == "clipped":
        hocket.clip_grad_norm_(model, 1.0)
    optimizer.step()


def buffers(rank: int, world: int) -> list[str]:
    """Buffers beside DDP's, changed in every way that torch counts, or that the first passes show."""
    found = []
    for case in BUFFER_CASES:
        found += [f"{case.__name__}: {difference}" for difference in case(rank)]
    return found + written_unseen(rank, first=0)


def written_unseen_later(rank: int, world: int) -> tuple[list[str], list[str]]:
    """What differs of passes, and what was told, where the first write that torch does not count is late."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = written_unseen(rank, first=7)
    lines = [str(each.message).partition(",")[0] for each in said]
    return found, [line for line in lines if line.startswith("a buffer was changed")]


def written_unseen(rank: int, first: int) -> list[str]:
    """From step ``first`` on each rank writes past what torch counts, to what no output depends on."""

    def make() -> nn.Module:
        model = buffer_cases.Normed()
        model.register_buffer("written", torch.zeros(3))
        return model

    def write(step: int, model: nn.Module) -> None:
        if step >= first:
            model.written.data.fill_(step + 0.5 * rank)

    return buffer_cases.loop(rank, Twins(make, buffer_cases.sgd), after=write)


def reads_that_are_noticed(rank: int, world: int) -> list[str]:
    """By name, the ways to have the host wait for a value, of which the device says nothing."""
    tensor = moved(nn.Linear(2, 2)).weight.detach()
    ways: dict[str, Callable[[], object]] = {
        "item": lambda: tensor[0, 0].item(),
        "tolist": tensor.tolist,
        "bool": lambda: bool(tensor[0, 0]),
        "float": lambda: float(tensor[0, 0]),
        "equal": lambda: torch.equal(tensor, tensor + 1),
        "nonzero": tensor.nonzero,
        "cpu": tensor.cpu,
        "numpy": tensor.numpy,
        "an event": lambda: here().wait(here().record()),
    }
    unnoticed = []
    for name, read in ways.items():
        here().waits.clear()
        read()
        unnoticed += [] if here().waits else [name]
    return unnoticed


def waits_of_transfers(rank: int, world: int, plan: str) -> tuple[int, int, int]:
    """Waits of threads that transfer in three more steps of a plan, and its buckets and transfers."""
    waits = []
    for steps in (6, 9):
        before = here().transfer_waits
        model = moved(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)))
        made = halved_plan(model) if plan == "halves" else sliced_plan(model, plan)
        hocket.distribute(model, optimizer := sgd(model), plan=made)
        for _ in range(steps):
            step_by_habit("plainly", model, optimizer, torch.randn(3, 6))
        layout = model.hocket._training.rounds._layout
        model.hocket.detach()
        waits.append(here().transfer_waits - before)
    return waits[1] - waits[0], len(layout.buckets), len(layout.transfers)


def recorded(rank: int, world: int) -> dict[str, object]:
    """Milliseconds of the parts of steps whose work is known, by a recorder alone, and what it waited for."""
    model = moved(nn.Linear(3, 3))
    recorder = DeviceRecorder(dict(model.named_parameters()), here())
    work = sent = model.weight.detach()
    transferring = here().streams.new(transfers=True)
    here().waits.clear()
    for step in range(1, 5):
        recorder.begin_step(step)
        recorder.resume()
        recorder.reads("layer", [model.weight, model.bias])
        work = work * 2 + 1
        recorder.forward_ended()
        recorder.gradient_completed(model.weight)
        work = work * 2
        recorder.gradient_completed(model.bias)
        recorder.backward_ended()
        updating = recorder.now()
        work = work * 2 * 2 * 2 * 2
        recorder.record_updates([["weight"], ["bias"]], updating)
        with here().streams.on(transferring):
            transfer = recorder.now(), sent * 2 * 2 * 2, recorder.now()
        recorder.record_transfer("reduce", "reduce weight", transfer[0], transfer[2])
    waited = list(here().waits)
    graph = recorder.graph("m", 1)
    assert graph is not None
    seconds = zip(graph.operation_names, graph.durations_s[:, -1].tolist(), strict=True)
    transfers_s = [end - start for _, name, start, end in recorder.spans if name == "reduce weight"]
    return {
        "waited": waited,
        "transfers": len(transfers_s),
        "the last transfer": round(transfers_s[-1] * 1e3, 3),
        **{name: round(each * 1e3, 3) for name, each in seconds},
    }


def timed(rank: int, world: int) -> dict[str, float | bool | str]:
    """The way to a plan by the device's clock, as shares of the time for which the device had work."""
    plan_at_once()
    model = moved(nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]))
    network = hocket.Network(bandwidth_bps=2e8)  # as long as computing, so that there is something to try
    hocket.distribute(model, optimizer := sgd(model), plan="auto", network=network)
    handle, recorder, busy = model.hocket, model.hocket._training.recorder, here().streams.first
    steps, settled, busy_s = 0, 0, 0.0
    while settled < 5 and steps < 70:
        settled += handle.settled
        before_s = busy.busy_s
        step_by_habit("plainly", model, optimizer, torch.full((3, 512), 1.0 + rank + steps))
        handle.flush()
        here().streams.wait(here().record())
        steps, busy_s = steps + 1, busy.busy_s - before_s
    recorder.flush()
    count, first, spans = recorder.last_steps(4)  # of the plan that stays
    last = list(recorder.begins)[-1]
    shown = sum(min(e, last) - max(s, first) for kind, _, s, e in spans if kind != "reduce")
    transfers = sum(kind == "reduce" for kind, _, _, _ in spans)
    choice = handle._decision
    return {
        "transfers": transfers / count / len(model.hocket._training.rounds._layout.transfers),
        "whole": shown / (last - first),
        "step": (last - first) / count / busy_s,
        "profile": sum(float(seconds) for seconds in choice.graph.typical().durations_s.flatten()) / busy_s,
        "turns": min(s for turns in choice.trials.values() for s in turns) / busy_s,
        "settled": handle.settled,
        "clock": handle.explain().splitlines()[0],
    }


def filled_on_several(rank: int) -> list[str]:
    """Hooks run on several streams, as those of parameters that a pass has used on side streams do."""
    twins = Twins(Branches, sgd, unused=True, plan="ddp")
    streams, rounds = here().streams, twins.ours.hocket._training.rounds
    fill = rounds.fill
    side = [streams.new() for _ in range(3)]

    def filled(p: nn.Parameter) -> None:
        produced = streams.record()
        with streams.on(side[p.numel() % 3]):
            streams.follow(produced)
            fill(p)

    rounds.fill = filled
    for step in range(4):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            model(torch.full((3, 6), 1.0 + rank + step), (step + rank) % 2 == 0).square().sum().backward()
            optimizer.step()
    return twins.differences()


def updated_on_several(rank: int) -> list[str]:
    """Each bucket is filled and updated on a stream of its own, and the next step is on another one."""
    twins = Twins(Branches, sgd, unused=True)
    streams, rounds = here().streams, twins.ours.hocket._training.rounds
    fill, side = rounds.fill, {p: streams.new() for p in twins.ours.parameters()}

    def filled(p: nn.Parameter) -> None:
        produced = streams.record()
        with streams.on(side[p]):
            streams.follow(produced)
            fill(p)

    rounds.fill = filled
    asked = streams.record()
    for step in range(4):
        with streams.on(streams.first if step % 2 else streams.new()):
            streams.follow(asked)
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                model(torch.full((3, 6), 1.0 + rank + step), True).square().sum().backward()
                optimizer.step()
            asked = streams.record()
        if step % 2:  # else the next pass's readers do it
            with streams.on():
                twins.ours.hocket.flush()  # on a stream that nobody follows
    twins.ours.hocket.flush()
    return twins.differences()


def shortened(rank: int, world: int = 2) -> list[str]:
    """Gradients that travel in half the bytes, filled on several streams."""
    twins = ShortTwins(Small, sgd, torch.bfloat16, unused=True)
    streams, rounds = here().streams, twins.ours.hocket._training.rounds
    fill = rounds.fill
    side = [streams.new() for _ in range(2)]

    def filled(p: nn.Parameter) -> None:
        produced = streams.record()
        with streams.on(side[p.numel() % 2]):
            streams.follow(produced)
            fill(p)

    rounds.fill = filled
    return train(twins, rank, 5)


def clipped_in_halves(rank: int) -> list[str]:
    """Norms are told and factors kept while gradients are on their way; some steps read them then."""
    found = []
    for plan in PLANS:
        twins = in_halves(Plain, plan)
        found += clipped(rank, twins, by_hand, steps=5)
    return found


def scaled_on_another_stream(rank: int) -> list[str]:
    """Factors are another stream's than the one on which gradients were filled and are applied."""
    twins = in_halves(Plain, halved_plan)
    streams = here().streams
    for step in range(5):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            asked = streams.record()
            # A whole plan's gradient, read here, is memory of that stream, which a script has to keep.
            elsewhere = model is twins.ours and step >= LEARNING_STEPS
            with streams.on() if elsewhere else contextlib.nullcontext():
                streams.follow(asked)
                functional.cross_entropy(model(x), y).backward()
                filled = streams.record()
            streams.follow(filled)
            factor = next(model.buffers()).new_full((), 0.5) * (step + 1)  # memory of the device
            for p in model.parameters():
                p.grad.mul_(factor)
            optimizer.step()
    return twins.differences()


CASES: tuple[Callable[[int], list[str]], ...] = (
    on_one_stream,
    on_another_stream,
    read_on_others,
    filled_on_several,
    updated_on_several,
    unused_parameters,
    shortened,
    lambda rank: settled_steps(rank, 2, "ready"),
    clipped_in_halves,
    scaled_on_another_stream,
    lambda rank: settled_steps(rank, 2, "halves"),
)


def short(rank: int, world: int) -> list[str]:
    """What differs in any of the cases above, until one does."""
    for case in CASES:
        if found := case(rank):
            return [case.__name__, *found]
    return []


def suite(rank: int, world: int) -> dict[str, list[str]]:
    """What a user of DistributedDataParallel has, on the device."""
    return parity(rank, world)


def measured_network(rank: int, world: int) -> float:
    """The network between a device that sums up when asked and one that does when waited for."""
    timeout = timedelta(seconds=60)
    control = GlooGroup(range(world), "control", timeout)
    group = here().transfer_group(range(world), "transfers", timeout, None)
    assert group is not None
    group.stream.keeps_up = 1.0 - rank
    layer = nn.Linear(1, 1)
    moved(layer)
    pieces = ReductionMeasurement(group, control, layer.weight).pieces()
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return float(end.value[0].reduction.a_s)
