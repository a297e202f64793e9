"""Compile what tests run, each kernel in one process: ``python -m tests.kernels``.

In a new clone nothing is compiled yet, and processes that test side by side would each compile all of it,
within tests that have to end in time. So it is with Python's own modules, which hundreds of commands import,
where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import compileall
from collections.abc import Callable
from pathlib import Path

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.simulator.simulate import simulate
from hocket.cluster.workloads import paper_workload
from hocket.executors import on_processes
from hocket.network import Network
from hocket.predictor import predict
from hocket.tuner import tune
from tests.golden.make import branches


def of_steps() -> None:
    """Kernels of planners, of simulated steps and their bounds, and of predictions."""
    graph, network = branches(), Network(bandwidth_bps=1000.0, num_workers=2)
    tune(graph, network, architecture="ps", budget_s=0.1)
    tune(graph, network, architecture="allreduce", budget_s=0.1)
    predict(graph, network, workers=[2], mode="async", steps=4, skip=1)


def of_clusters() -> None:
    """Kernels of shared clusters."""
    cluster = Cluster(num_servers=16, gpus_per_server=4)
    simulate(paper_workload(seed=0, num_jobs=8), cluster, Scheduling(placement="lwf-1", policy="srsf-1"))


def _compile(kernels: Callable[[], None]) -> None:
    kernels()


if __name__ == "__main__":
    for folder in ("hocket", "tests"):
        compileall.compile_dir(Path(__file__).parents[1] / folder, quiet=1)
    on_processes(_compile, [(of_clusters,), (of_steps,)])
