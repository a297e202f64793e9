"""iBatch against every batching, the printed algorithms, and the simulator."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.graph import StepGraph, check_plan
from hocket.network import Network
from hocket.planner.baselines import default, layerwise, poseidon
from hocket.planner.ibatch import batches_end, ibatch, mirrored, optimal_batches
from hocket.planner.ibatch_greedy import algorithm_1, algorithm_2, greedy_batches, ibatch_greedy
from hocket.planner.p3 import p3
from hocket.sim import simulate
from tests.naive import ibatch as naive
from tests.strategies import examples, networks, operation, parameter, step, steps

Chain = tuple[list[int], list[int], int]


@st.composite
def chains(draw: st.DrawFn, max_layers: int) -> Chain:
    """Transfers, computes and startup in whole seconds: small ones tie, large ones do not."""
    num_layers = draw(st.integers(1, max_layers))
    times = st.integers(0, draw(st.sampled_from([1, 4, 1000])))
    layers = st.lists(times, min_size=num_layers, max_size=num_layers)
    return draw(layers), draw(layers), draw(times)


@given(chains(12))
@examples(150)
def test_no_batching_ends_sooner_or_as_soon_with_fewer_batches(chain: Chain) -> None:
    best = min(naive.batchings(len(chain[0])), key=lambda ends: naive.pull_end(ends, *chain))
    found = optimal_batches(*chain)
    assert naive.pull_end(found, *chain) == naive.pull_end(best, *chain)
    assert len(found) == len(best)


@given(chains(60))
@examples(150)
def test_ibatch_is_the_dynamic_program(chain: Chain) -> None:
    end, ends = naive.dynamic_program(*chain)
    assert optimal_batches(*chain) == ends
    assert batches_end(ends, *chain) == pytest.approx(end)


@given(chains(10))
@examples(150)
def test_no_batching_of_the_pushes_ends_sooner(chain: Chain) -> None:
    best = min(naive.batchings(len(chain[0])), key=lambda ends: naive.push_end(ends, *chain))
    found = mirrored(optimal_batches, *chain)
    assert naive.push_end(found, *chain) == naive.push_end(best, *chain)
    assert len(found) == len(best)


@given(chains(14), st.data())
@examples(200)
def test_pushes_are_pulls_from_the_other_end(chain: Chain, data: st.DataObject) -> None:
    transfer, compute, startup = chain
    num_layers = len(transfer)
    ends = data.draw(st.sampled_from(list(naive.batchings(min(num_layers, 8)))))
    ends[-1] = num_layers
    other = mirrored(lambda *_: ends, transfer, compute, startup)
    assert naive.push_end(other, *chain) == naive.pull_end(ends, transfer[::-1], compute[::-1], startup)


@given(chains(14))
@examples(400)
def test_greedy_is_algorithms_1_and_2(chain: Chain) -> None:
    first, second = naive.algorithm_1(*chain), naive.algorithm_2(*chain)
    assert algorithm_1(*chain) == first
    assert algorithm_2(*chain) == second
    better = first if naive.pull_end(first, *chain) <= naive.pull_end(second, *chain) else second
    assert greedy_batches(*chain) == better


@given(chains(80))
@examples(100)
def test_greedy_is_never_better_than_exact(chain: Chain) -> None:
    exact, greedy = optimal_batches(*chain), greedy_batches(*chain)
    assert naive.pull_end(exact, *chain) <= naive.pull_end(greedy, *chain)


@given(steps(), st.data())
@examples(100)
def test_every_plan_can_run_its_step(graph: StepGraph, data: st.DataObject) -> None:
    network = data.draw(networks(graph))
    for planner in (ibatch, ibatch_greedy, layerwise, default, poseidon, p3):
        check_plan(planner(graph, network), graph)


def chain_graph(chain: Chain, backward: list[int] | None = None) -> StepGraph:
    """Layer i reads parameter i; if ``backward`` times layers, its gradient follows in reverse order."""
    transfer, compute, _ = chain
    assume(any(transfer))  # a step that sends nothing is refused
    rows = [operation("begin", 0.0)]
    for i, seconds in enumerate(compute):
        rows.append(operation(f"forward {i}", float(seconds), inputs=[rows[-1].name], reads=[f"p{i}"]))
    for i in reversed(range(len(backward or []))):
        rows.append(
            operation(
                f"backward {i}",
                float(backward[i]),
                inputs=[rows[-1].name],
                produces=[f"p{i}"],
                phase="backward",
            )
        )
    return step([parameter(f"p{i}", 125 * seconds) for i, seconds in enumerate(transfer)], rows)


@given(chains(20))
@examples(150)
def test_the_simulator_takes_as_long_as_the_program_says(chain: Chain) -> None:
    graph, startup = chain_graph(chain), chain[2]
    network = Network(bandwidth_bps=1000.0, startup_s=float(startup))
    for planner, choose in ((ibatch, optimal_batches), (ibatch_greedy, greedy_batches)):
        row = simulate(graph, planner(graph, network), network, iterations=1).row
        assert row.iteration_s == pytest.approx(naive.pull_end(choose(*chain), *chain))


@given(chains(12), st.data())
@examples(150)
def test_a_simulated_training_step_is_its_pulls_and_then_its_pushes(
    chain: Chain, data: st.DataObject
) -> None:
    transfer, compute, startup = chain
    times = st.lists(st.integers(0, 8), min_size=len(compute), max_size=len(compute))
    backward = data.draw(times)
    graph = chain_graph(chain, backward)
    network = Network(bandwidth_bps=1000.0, startup_s=float(startup))
    mirror = (transfer[::-1], backward[::-1], startup)
    end = naive.pull_end(optimal_batches(*chain), *chain)
    end += naive.push_end(mirrored(optimal_batches, *mirror), *mirror)
    row = simulate(graph, ibatch(graph, network), network, iterations=1).row
    assert row.iteration_s == pytest.approx(end)
