"""The example to profile: its plans differ, on a derived device, where durations are always the same."""

from pathlib import Path

import pytest

import hocket
from hocket.profiler import derive, fake, load, make_step, profile_step

TARGET = f"{Path(__file__).parents[3] / 'examples' / 'mine.py'}:job"


@pytest.fixture(scope="module")
def graph():
    with fake():
        setup = load(TARGET, 32)
        return derive(make_step(*setup[:4]), device="k80", name=setup.name)


def simulated(graph, policy, architecture, bandwidth_bps):
    network = hocket.Network(bandwidth_bps=bandwidth_bps, startup_s=50e-6, num_workers=2, num_servers=1)
    plan = hocket.plan(graph, network, policy, architecture=architecture)
    return hocket.simulate(graph, plan, network, iterations=20).row


def test_slices_are_ahead_of_ddps_buckets(graph):
    ddp, slices = (simulated(graph, policy, "allreduce", 10e9) for policy in ("ddp", "bytescheduler"))
    assert 0.8 < ddp.rho < 1.5  # about as much to transfer as to compute
    assert ddp.iteration_s > 1.3 * slices.iteration_s
    assert slices.iteration_s < 1.1 * slices.bound_s


def test_tac_is_ahead_of_random_orders(graph):
    tac, drawn = (simulated(graph, policy, "ps", 60e9) for policy in ("tac", "random"))
    assert 0.8 < tac.rho < 1.2
    assert drawn.iteration_s > 1.2 * tac.iteration_s


def test_the_example_is_measured_with_all_its_parameters():
    setup = load(TARGET, 2)
    measured = profile_step(make_step(*setup[:4]), steps=1, warmup=1, name=setup.name).graph
    assert (measured.model, measured.batch_size, measured.num_parameters) == ("job", 2, 20)
    assert int(measured.parameter_bytes.sum()) == 22_438_816


def test_the_transformer_is_derived_with_all_its_parameters():
    with fake():
        setup = load(TARGET.replace("mine", "gpt"), 2)
        derived = derive(make_step(*setup[:4]), device="v100")
    assert sorted(derived.parameter_names) == sorted(name for name, _ in setup.model.named_parameters())
