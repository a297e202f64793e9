"""Step times alone: long runs for predictions, also on workers and links that differ from each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.network import Network
from hocket.network.topology import Topology
from hocket.sim.lowering.lowered import Floats
from hocket.sim.step_runs import StepRuns, lower


def step_times(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    *,
    iterations: int,
    seed: int = 0,
    random_order: bool = False,
    speeds: Sequence[float] | None = None,
    topology: Topology | None = None,
    watch: Indices | None = None,
) -> tuple[Floats, int]:
    """Seconds of each step, (iterations,), and how many operations, transfers and messages were simulated.

    The steps of :func:`hocket.sim.simulate` with the same draws, without bounds and figures. ``speeds`` (W,):
    worker w's operations, and what it parses, take their seconds divided by ``speeds[w]``; servers keep
    theirs. ``topology``: the links between workers and servers in place of the network's equal interfaces; an
    AllReduce costs what ``network`` says it does, whatever the topology. watch (1,): how many steps are
    simulated, for another thread to read.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step or the network, ``iterations`` is not positive, or speeds and
        topology are not those of as many machines.
    """
    if iterations < 1:
        raise HocketError(f"{iterations} iterations are no run; simulate at least 1")
    if speeds is not None:
        if len(speeds) != network.num_workers:
            raise HocketError(f"{len(speeds)} speeds for {network.num_workers} workers; give one for each")
        for speed in speeds:
            if not (math.isfinite(speed) and speed > 0):
                raise HocketError(f"speed {speed} is not positive; give e.g. 0.5 for a worker half as fast")
    if topology is not None and plan.architecture == "ps":
        machines = len(topology.worker_bps), len(topology.server_bps)
        if machines != (network.num_workers, network.num_servers):
            raise HocketError(
                f"a topology of {machines[0]} workers and {machines[1]} servers for "
                f"{network.num_workers} and {network.num_servers}; give one interface for each"
            )
    lowered = lower(graph, plan, network)
    run = StepRuns(lowered, seed, random_order, speeds=speeds, topology=topology)
    seconds = np.empty(iterations)
    for k, step in enumerate(run.steps(iterations)):
        seconds[k] = step.end_s - step.start_s
        if watch is not None:
            watch[0] = k + 1
    return seconds, iterations * lowered.num_events(network.num_workers)
