"""Draw the pictures of these pages from simulations: ``python docs/draw/make.py``.

Each shows one method beside what it is compared with, on the step in ``docs/figures/cnn.step.json``: one
training step of a convolutional network, profiled on a processor; ``layers`` is the import graph.
``python docs/draw/make.py --check`` says which pictures are not what is committed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
from layers import layers
from svg import KIND_COLOURS, SERIES_COLOURS, Bar, Lane, Panel, curves, timelines

from hocket import Network, StepGraph, load_step, predict, simulate
from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import TimelineWindow
from hocket.cluster.simulator.simulate import simulate as simulate_cluster
from hocket.cluster.workloads.trained_models import TABLE_III
from hocket.graph import Plan, Timeline
from hocket.sim.bounds.lower_bound import lower_bound
from hocket.sim.kernel_spans import timeline_of
from hocket.sim.lowering.beside import BLOCKING, STARTED
from hocket.sim.lowering.sharded_step import ShardedStep, lower_sharded_step
from hocket.sim.lowering.slices import slice_step
from hocket.sim.step_runs import StepRuns
from hocket.tuner import Exchange, PlannedPolicy, make_plan

FOLDER = Path(__file__).parents[1] / "figures"
CNN = FOLDER / "cnn.step.json"

# Names as people know them, for captions.
TITLES = {
    "ddp": "PyTorch DDP",
    "default": "one batch, nothing overlapped",
    "random": "random order",
    "fifo": "file order",
}


def servers(baseline: str, policy: str, *, bandwidth_bps: float = 2e9, startup_s: float = 50e-6) -> str:
    """Two workers and a parameter server: the first worker's view of a step."""
    network = Network(bandwidth_bps=bandwidth_bps, startup_s=startup_s, num_workers=2)
    return timelines(
        [_panel(_cnn(), name, network, ("compute", "pull", "push"), 1) for name in (baseline, policy)],
        _legend("forward", "backward", "pull", "push"),
    )


def reductions(baseline: str, policy: str) -> str:
    """Two workers on links of 400 Mbit/s that AllReduce: two steps of the first worker, and the network."""
    network = Network(bandwidth_bps=400e6, startup_s=50e-6, num_workers=2)
    return timelines(
        [_panel(_cnn(), name, network, ("compute", "reductions"), 2) for name in (baseline, policy)],
        _legend("forward", "backward", "update", "reduce"),
    )


def _panel(graph: StepGraph, policy: str, network: Network, shown: tuple[str, ...], periods: int) -> Panel:
    """The lanes ``shown`` of a step under ``policy``, repeated where steps overlap."""
    exchange = Exchange(architecture="allreduce" if "reductions" in shown else "ps")
    planned = make_plan(graph, network, policy, exchange, budget_s=20.0)
    result = simulate(
        graph, planned.plan, network, iterations=20, random_order=planned.drawn_anew, timeline=True
    )
    assert result.timeline is not None
    row = result.row
    caption = f"{TITLES.get(policy, policy)}: {row.iteration_s:.2f} s a step"
    bound_s = _bound_s(graph, planned, network)
    if row.iteration_s > 1.005 * bound_s:
        caption += f" ({_slices(planned.plan)}, no plan beats {bound_s:.2f} s)"
    return Panel(
        caption=caption,
        lanes=list(_lanes(result.timeline, shown, periods)),
        marks_s=[k * result.timeline.end_s for k in range(1, periods + 1)],
    )


def _bound_s(graph: StepGraph, planned: PlannedPolicy, network: Network) -> float:
    """What no plan with these slices and this barrier beats, however it batches."""
    plan = planned.plan
    cut, _ = slice_step(graph, plan)
    bound = lower_bound(cut, network, plan.architecture, plan.barrier, lockstep=not planned.drawn_anew)
    return max(bound.shared, float(bound.each.max()))


def _slices(plan: Plan) -> str:
    """What the bound is of: it holds for no plan with other slices."""
    cut = any(item.chunks > 1 for item in (*plan.pulls, *plan.pushes))
    cut |= any(item.slice is not None for item in plan.reductions)
    return "in these slices" if cut else "unsliced"


def _cnn() -> StepGraph:
    """The step with the least duration of each operation, so that every simulated step is the same."""
    graph = load_step(CNN)
    return dataclasses.replace(graph, durations_s=graph.oracle_s[:, None])


def _lanes(timeline: Timeline, shown: tuple[str, ...], periods: int) -> Iterable[Lane]:
    """The lanes of the first worker, and of the network that all share, whose names are ``shown``."""
    for index, lane in enumerate(timeline.lanes):
        if lane.process not in ("worker 0", "network") or not lane.name.startswith(shown):
            continue
        bars = [
            Bar(
                start_s=span.start_s + k * timeline.end_s,
                end_s=span.end_s + k * timeline.end_s,
                colour=KIND_COLOURS[span.kind],
                name=span.name if span.kind in ("pull", "push", "reduce") else "",
            )
            for k in range(periods)
            for span in timeline.spans
            if span.lane == index and span.kind in KIND_COLOURS
        ]
        yield Lane(
            label={"compute": "processor", "reductions": "network"}.get(lane.name, lane.name), bars=bars
        )


def sharded() -> str:
    """Two workers on links of 400 Mbit/s, fully sharded: the first one's step, by what starts transfers."""
    network = Network(bandwidth_bps=400e6, startup_s=50e-6, num_workers=2)
    graph = _cnn()
    planned = make_plan(graph, network, "fsdp", Exchange(architecture="fsdp")).plan
    plan = msgspec.structs.replace(planned, forward_prefetch=_next_ones(len(planned.units)))
    panels = []
    for title, beside in (("plain FSDP2 over gloo", BLOCKING), ("hocket.shard", STARTED)):
        lowered = lower_sharded_step(ShardedStep.of(graph, network, beside), plan, network.num_workers)
        shown = timeline_of(lowered, network.num_workers, plan, *StepRuns(lowered, 0, False).window(0, 1))
        lanes = list(_lanes(shown, ("compute", "all-gathers", "reduce-scatters"), 1))
        panels.append(Panel(caption=f"{title}: {shown.end_s:.2f} s a step", lanes=lanes))
    colours = {"all-gathers": KIND_COLOURS["pull"], "reduce-scatters": KIND_COLOURS["push"]}
    return timelines(panels, _legend("forward", "backward", "update") | colours)


def _next_ones(count: int) -> tuple[tuple[int, ...], ...]:
    """Lists of forward prefetch: each unit has the next one gathered."""
    return tuple((k + 1,) if k + 1 < count else () for k in range(count))


def _legend(*kinds: str) -> dict[str, str]:
    return {
        {"pull": "pulls", "push": "pushes", "reduce": "all-reduces"}.get(k, k): KIND_COLOURS[k] for k in kinds
    }


def jobs_on(baseline: tuple[str, str], chosen: tuple[str, str]) -> str:
    """Four jobs on three servers of two GPUs, under two pairs of placement and policy."""
    models = {model.name: model for model in TABLE_III}
    wanted = [("vgg16", 3, 3), ("resnet50", 3, 8), ("lstm_ptb", 4, 3), ("inception_v3", 2, 4)]
    jobs = tuple(
        Job(
            id=f"{chr(ord('A') + i)}: {name}",
            model=name,
            gpus=gpus,
            iterations=iterations,
            arrival_s=0.02 * i,
            forward_s=models[name].forward_s,
            backward_s=models[name].backward_s,
            size_bytes=models[name].size_bytes,
            memory_bytes=models[name].memory_bytes,
        )
        for i, (name, gpus, iterations) in enumerate(wanted)
    )
    colours = dict(zip((job.id for job in jobs), SERIES_COLOURS, strict=False))
    panels = []
    for placement, policy in (baseline, chosen):
        run = simulate_cluster(
            JobSet(jobs=jobs),
            Cluster(num_servers=3, gpus_per_server=2),
            Scheduling(placement=placement, policy=policy, chunk_bytes=32e6),
            TimelineWindow(),
        )
        assert run.timeline is not None
        mean_s = float((run.finish_s - run.arrival_s).mean())
        lanes = [
            Lane(
                label=f"{lane.process[0]}{lane.process[-1]} {lane.name}",
                bars=[
                    Bar(start_s=s.start_s, end_s=s.end_s, colour=colours[s.name], name=s.name[0])
                    for s in run.timeline.spans
                    if s.lane == i
                ],
            )
            for i, lane in enumerate(run.timeline.lanes)
        ]
        panels.append(
            Panel(caption=f"{placement}, {policy}: jobs take {mean_s:.2f} s on average", lanes=lanes)
        )
    return timelines(panels, colours)


def optimum() -> str:
    """A step of two branches small enough to prove a plan for, beside DDP's buckets."""
    graph = load_step(Path(__file__).parents[2] / "tests" / "golden" / "branches.step.json")
    network = Network(bandwidth_bps=2000.0, num_workers=2)
    return timelines(
        [_panel(graph, name, network, ("compute", "reductions"), 2) for name in ("ddp", "exact")],
        _legend("forward", "backward", "update", "reduce"),
    )


def throughput() -> str:
    """Predicted throughput over the number of workers, three architectures."""
    graph = load_step(CNN)
    network = Network(bandwidth_bps=1e9, startup_s=50e-6)
    workers = range(1, 17)
    requests = {
        "asynchronous, 1 server": partial(predict, servers=(1,), mode="async"),
        "asynchronous, 2 servers": partial(predict, servers=(2,), mode="async"),
        "synchronous, 1 server": partial(predict, servers=(1,), mode="sync"),
        "all-reduce": partial(predict, architecture="allreduce"),
    }
    series = {
        name: [(row.workers, row.throughput) for row in ask(graph, network, workers=workers, steps=200)]
        for name, ask in requests.items()
    }
    return curves(series, "workers", "examples a second")


# What comes of a budget in seconds is another plan each time.
TIMED = frozenset({"search"})

FIGURES: dict[str, Callable[[], str]] = {
    "readme": partial(reductions, "ddp", "bytescheduler"),
    "fifo": partial(servers, "default", "fifo"),
    "layerwise": partial(servers, "default", "layerwise"),
    "poseidon": partial(servers, "default", "poseidon"),
    "tic": partial(servers, "random", "tic"),
    "tac": partial(servers, "random", "tac"),
    "ibatch-greedy": partial(servers, "fifo", "ibatch-greedy", startup_s=20e-3),
    "ibatch": partial(servers, "fifo", "ibatch", startup_s=20e-3),
    "p3": partial(servers, "fifo", "p3", bandwidth_bps=1e9),
    "wfbp": partial(reductions, "ddp", "wfbp"),
    "horovod": partial(reductions, "ddp", "horovod"),
    "caramel": partial(reductions, "ddp", "caramel"),
    "bytescheduler": partial(reductions, "ddp", "bytescheduler"),
    "exact": optimum,
    "search": partial(reductions, "ddp", "search"),
    "sharded": sharded,
    "srsf": partial(jobs_on, ("lwf-1", "fifo"), ("lwf-1", "srsf-1")),
    "ada-srsf": partial(jobs_on, ("lwf-1", "srsf-1"), ("lwf-1", "ada-srsf")),
    "kway": partial(jobs_on, ("lwf-1", "srsf-1"), ("lwf-1", "kway")),
    "psrsf": partial(jobs_on, ("lwf-1", "srsf-1"), ("lwf-1", "psrsf")),
    "srpt": partial(jobs_on, ("lwf-1", "srsf-1"), ("lwf-1", "srpt")),
    "tiresias": partial(jobs_on, ("lwf-1", "fifo"), ("lwf-1", "tiresias")),
    "placements": partial(jobs_on, ("ff", "srsf-1"), ("lwf-1", "srsf-1")),
    "prediction": throughput,
    "layers": layers,
}


def main() -> None:
    """Write all pictures, or compare them with what is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a picture differs")
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    differing = []
    for name in args.names or FIGURES:
        if args.check and name in TIMED:
            continue
        path, drawn = FOLDER / f"{name}.svg", FIGURES[name]()
        if args.check and (not path.exists() or path.read_text() != drawn):
            differing.append(name)
        elif not args.check:
            path.write_text(drawn)
    if differing:
        sys.exit(f"not as committed: {', '.join(differing)}; run python docs/draw/make.py")


if __name__ == "__main__":
    main()
