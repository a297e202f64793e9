"""iBatch's scaling in more detail than `hocket reproduce ibatch`: longer startups, whole parameters.

How nodes are made of the paper's testbed is in hocket.reproduce.ibatch.testbed. What hocket itself does,
whole parameters on servers, is simulated beside it where servers have one each.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.graph import Phase, Plan, ResultRow, StepGraph
from hocket.graph.flat_plan import flatten
from hocket.network import Network
from hocket.planner import plan
from hocket.planner.ibatch import ibatch
from hocket.reproduce import FULL
from hocket.reproduce.ibatch.ibatch_claims import FIGURE_5 as PAPER
from hocket.reproduce.ibatch.ibatch_measurements import MODELS, step_of
from hocket.reproduce.ibatch.testbed import POLICIES, STARTUP_S, matching_default, one_of, rows_of, speedup
from hocket.sim import simulate
from hocket.sim.evaluator import PlanEvaluator

pytestmark = pytest.mark.timeout(900)

NODES = (6, 30, 72)


@pytest.fixture(scope="module")
def steps() -> dict[str, StepGraph]:
    """Each model's step with every operation's least time of three, as one sample."""
    measured = {}
    for name in MODELS:
        graph = step_of(name, FULL)
        measured[name] = graph
        spent = [float(graph.oracle_s[graph.phases == phase].sum()) for phase in Phase]
        print(f"\n{name}: least times of {FULL.profiled_steps}:", end="")
        print(f" forward {spent[0]:.3f}, backward {spent[1]:.3f}, update {spent[2]:.3f} s", end="")
        print(f", {graph.parameter_bytes.sum() / 2**20:.1f} MiB")
    return measured


def run(graph: StepGraph, made: Plan, network: Network) -> ResultRow:
    return simulate(graph, made, network, iterations=1).row


def speedups(graph: StepGraph, rows: dict[str, ResultRow], nodes: int) -> str:
    """Over one node that computes and updates without a network."""
    return "".join(f" {speedup(graph, row, nodes):13.1f}" for row in rows.values())


def header(label: str) -> None:
    print(f"\n{label:40}" + "".join(f" {policy:>13}" for policy in POLICIES))


def test_scaling(benchmark, steps: dict[str, StepGraph]) -> None:  # type: ignore[no-untyped-def]
    """Fig. 5 (pushes together), the whole plan (pushes own), Fig. 6 (pushes free)."""
    for pushes in ("together", "own", "free"):
        header(f"speedup, pushes {pushes}")
        for model, graph in steps.items():
            for nodes in NODES:
                rows = rows_of(graph, one_of(nodes), nodes, pushes)
                label = f"{model}, {nodes} nodes, rho {rows['default'].rho:.2f}"
                print(f"{label:40}{speedups(graph, rows, nodes)}  paper {PAPER.get((model, nodes), '')}")
    benchmark.pedantic(ibatch, args=(steps["vgg19_22k"], one_of(72)), rounds=3)


def test_at_the_papers_default(benchmark, steps: dict[str, StepGraph]) -> None:  # type: ignore[no-untyped-def]
    """Bandwidth such that ``default`` meets the paper's figure: what do the other two give then?

    The last column is the most that any batching of pulls can give: pulls or forward hidden completely.
    """
    for startup_s in (STARTUP_S, 5e-3, 20e-3):
        header(f"pushes together, startup {startup_s * 1e3:.2g} ms")
        for (model, nodes), figures in PAPER.items():
            graph = steps[model]
            step_s = nodes * float(graph.oracle_s.sum()) / figures[0]
            network = matching_default(graph, nodes, figures[0], startup_s)
            moving_s = 8 * float(graph.parameter_bytes.sum()) / network.bandwidth_bps
            rows = rows_of(graph, network, nodes, "together")
            forward_s = float(graph.oracle_s[graph.phases == Phase.FORWARD].sum())
            most = nodes * float(graph.oracle_s.sum()) / (step_s - min(moving_s + startup_s, forward_s))
            label = f"{model}, {nodes} nodes, {network.bandwidth_bps / 1e9:.2f} Gbit/s"
            print(f"{label:40}{speedups(graph, rows, nodes)}  at most {most:.1f}  paper {figures}")
    benchmark.pedantic(ibatch, args=(steps["googlenet"], one_of(30)), rounds=3)


def test_decomposition(benchmark, steps: dict[str, StepGraph]) -> None:  # type: ignore[no-untyped-def]
    """Fig. 7: overlapped time, communication and computation that are not, over the default step."""
    for model in ("inception_v3", "vgg19"):
        for pushes in ("together", "own"):
            print(f"\n{model}, 72 nodes, pushes {pushes}: overlapped, communication, computation, sum")
            rows = rows_of(steps[model], one_of(72), 72, pushes)
            for policy, row in rows.items():
                both = row.communication_s + row.compute_s - row.iteration_s
                parts = (both, row.communication_s - both, row.compute_s - both, row.iteration_s)
                shares = "".join(f" {part / rows['default'].iteration_s:6.3f}" for part in parts)
                print(f"  {policy:14}{shares}")
    benchmark.pedantic(ibatch, args=(steps["vgg19"], one_of(72)), rounds=3)


def test_whole_parameters(benchmark, steps: dict[str, StepGraph]) -> None:  # type: ignore[no-untyped-def]
    """As many servers as nodes, each parameter on one: hocket's own placement, the policy's own pushes."""

    def step_s(graph: StepGraph, network: Network, policy: str) -> float:
        return PlanEvaluator(graph, network, "ps").seconds(flatten(plan(graph, network, policy), graph))

    header("speedup, whole parameters, pushes own")
    for model, graph in steps.items():
        for nodes in NODES:
            if nodes > graph.num_parameters:
                print(f"{model}, {nodes} nodes: more servers than its {graph.num_parameters} parameters")
                continue
            network = replace(one_of(nodes), num_workers=nodes, num_servers=nodes)
            gains = [nodes * graph.oracle_s.sum() / step_s(graph, network, policy) for policy in POLICIES]
            print(f"{f'{model}, {nodes} nodes':40}" + "".join(f" {gain:13.1f}" for gain in gains))
    # One worker stands for all 72: the full simulation gives the same.
    graph, network = steps["googlenet"], replace(one_of(72), num_workers=72, num_servers=72)
    made = plan(graph, network, "ibatch")
    row = benchmark.pedantic(run, args=(graph, made, network), rounds=3)
    assert row.iteration_s == pytest.approx(step_s(graph, network, "ibatch"))
