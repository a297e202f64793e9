"""Many configurations at once: on this machine's cores, or spread over a Ray cluster."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from typing import Literal

import numpy as np

from hocket.errors import HocketError
from hocket.executors import POLL_S, Progress, on_ray
from hocket.graph import Plan, StepGraph
from hocket.logs import logger
from hocket.network import Network
from hocket.planner import Architecture, Barrier
from hocket.predictor.interpolation import bracketed, interpolated
from hocket.predictor.kernel_run import ended_by
from hocket.predictor.machines import ALIKE, Machines
from hocket.predictor.prediction import summed_up
from hocket.predictor.prediction_request import Mode, Request, Updates
from hocket.predictor.predictions import Predictions, setup_line
from hocket.predictor.prepared import Prepared, prepare
from hocket.predictor.run_outcome import Outcome, run
from hocket.predictor.size_check import check_size
from hocket.text import counted, machines_text, rate_text

Engine = Literal["local", "ray"]


def predict(
    graph: StepGraph,
    network: Network,
    *,
    workers: int | Sequence[int] = 1,
    servers: int | Sequence[int] | None = None,
    mode: Mode | None = None,
    architecture: Architecture | None = None,
    barrier: Barrier | None = None,
    policy: str | None = None,
    plan: Plan | None = None,
    updates: Updates = "arrival",
    window_bytes: float | None = None,
    machines: Machines | None = None,
    steps: int = 1000,
    skip: int = 50,
    max_steps: int | None = None,
    repeats: int = 1,
    seed: int = 0,
    fusion_bytes: int = 0,
    budget_s: float = 10.0,
    clip: bool = False,
    memory_bytes: float | None = None,
    price_per_worker_hour: float | None = None,
    price_per_server_hour: float | None = None,
    engine: Engine = "local",
    progress: Progress | None = None,
) -> Predictions:
    """Predict the throughput of training ``graph`` on any numbers of workers and servers.

    Source: Algorithm 3.1 of Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020).
    Synchronous training, backup workers and AllReduce, of which the paper says nothing, are ours.

    Parameters
    ----------
    graph
        One worker's step, as :func:`hocket.profile` or :func:`hocket.load_step` gives it.
    network
        Bandwidth, startup, parse costs, pattern and window. Its number of workers does not matter; its number
        of servers is the default of ``servers``.
    workers, servers
        A number each, or several; a row for each combination. AllReduce has no servers. Where simulating all
        numbers of workers takes long, some are simulated and the rows between them interpolated, which
        ``Prediction.interpolated`` says.
    mode
        "async" (Algorithm 3.1) or "sync"; None: sync with AllReduce, async with parameter servers.
    architecture
        "allreduce" or "ps"; None: the plan's or the policy's. Where those leave it open, servers ("ps") if
        anything is asked for that only they have: ``servers``, a network of several servers or with a window,
        mode "async", ``barrier``, ``window_bytes``, updates "commit", or machines with ``server_bps``,
        ``backup`` or ``spread``; else AllReduce.
    barrier
        "step" or "parameter", of synchronous servers: what pulls wait for; None: the policy's own.
    policy
        The name of the policy that plans; None: ddp, fifo with servers.
    plan
        A plan instead, used as it is for every number of workers; beside it ``policy``, ``barrier`` and
        ``fusion_bytes`` are refused.
    updates
        When servers begin a worker's updates: "arrival" of each gradient, and on a processor for each worker
        if asynchronous (the paper); "commit": when its operations are over, and one worker's after another's,
        as Hocket's own servers do; each then begins a worker's next asynchronous step by itself.
    window_bytes
        The HTTP/2 window: a larger stream stops once for the others. 0: streams run whole, in the plan's
        order. None: the network's; if that has none, 28 MB in asynchronous training, else 0. AllReduce has no
        streams.
    machines
        Differences from equal machines on a network of their own; None: there are none.
    steps, skip
        Steps of each worker, at least 1, and how many of them, fewer than all, are left out at the beginning.
    max_steps
        The most steps of each worker, no fewer than ``steps``; None: 16 times ``steps``. A run whose first
        and second half (without the skipped steps) take times that differ by more than 5% of the longer is
        repeated with four times the steps, until they agree or this is reached; its second half counts then.
    repeats
        Runs with different draws (``seed``, ``seed`` + 1, ...); two or more give confidence intervals.
    seed
        Decides every random draw: of measured steps, orders, and what the planner draws.
    fusion_bytes
        Horovod's buffer, in bytes, for policy "horovod" alone; 0: none.
    budget_s
        Seconds that the planners ``exact`` and ``search`` may take for each row.
    clip
        The step clips its gradients by their norm (AllReduce), whether or not it was measured so; caramel,
        bytescheduler and search may cut reductions in halves.
    memory_bytes
        The memory of a worker's device, which fully sharded plans that search keep to; None: no limit.
    price_per_worker_hour, price_per_server_hour
        Prices of a machine for an hour, in any currency; None: no cost is told.
    engine
        "local" uses all cores, "ray" a Ray cluster: the one that RAY_ADDRESS names, else one on this machine
        for as long as it takes.
    progress
        Called with simulated steps done and in all, weighed by workers, with Ray with runs. A run that begins
        again with more steps counts once.

    Returns
    -------
    The rows, a :class:`hocket.Predictions`: for each number of servers one for each number of workers.

    Raises
    ------
    FormatError
        When the plan does not fit the step.
    UnknownNameError
        When no policy has that name; lists those there are.
    HocketError
        When a value is out of its range or one option excludes another; when runs need more memory than is
        there, or take more than a day; when Ray is asked for and is not installed.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> network = hocket.Network(bandwidth_bps=10e9, startup_s=50e-6)
    >>> rows = hocket.predict(graph, network, workers=range(1, 5), steps=20, skip=5)
    >>> [row.workers for row in rows]
    [1, 2, 3, 4]
    """
    if repeats < 1:
        raise HocketError(f"{repeats} repeats are no run; give at least 1")
    for price in (price_per_worker_hour, price_per_server_hour):
        if price is not None and not 0 <= price <= 1e9:
            raise HocketError(f"price {price} is not between 0 and 1e9 an hour; give e.g. 0.9")
    workers = (workers,) if isinstance(workers, int) else tuple(workers)
    servers = (servers,) if isinstance(servers, int) else tuple(servers or ())
    if not workers:
        raise HocketError("no number of workers to predict for; give at least one")
    request = Request(
        graph=graph,
        network=network,
        machines=ALIKE if machines is None else machines,
        mode=mode,
        architecture=architecture,
        served=bool(servers) or network.num_servers > 1,
        barrier=barrier,
        policy=policy,
        plan=plan,
        updates=updates,
        window_bytes=window_bytes,
        steps=steps,
        skip=skip,
        max_steps=max_steps,
        seed=seed,
        fusion_bytes=fusion_bytes,
        budget_s=budget_s,
        clip=clip,
        memory_bytes=memory_bytes,
    )
    prepared = [prepare(request, w, m) for m in servers or (network.num_servers,) for w in workers]
    if prepared[0].plan.architecture != "ps":
        if len(prepared) > len(workers):
            raise HocketError(f"{len(servers)} numbers of servers: all-reduce has none; leave them out")
        if price_per_server_hour is not None:
            raise HocketError(f"price {price_per_server_hour} of a server: all-reduce has none; leave it out")
    between = bracketed(prepared, repeats)
    simulated = [k for k in range(len(prepared)) if k not in between]
    check_size([prepared[k] for k in simulated], repeats)
    seeds = range(seed, seed + repeats)
    tasks = [(prepared[k], s) for k in simulated for s in seeds]
    runs = on_ray(_run_copy, tasks, progress) if engine == "ray" else _on_threads(tasks, progress)
    outcomes = {k: runs[i * repeats : (i + 1) * repeats] for i, k in enumerate(simulated)}
    for k, (fewer, more) in between.items():
        pairs = zip(outcomes[fewer], outcomes[more], strict=True)
        outcomes[k] = [interpolated(prepared[k], prepared[fewer], prepared[more], pair) for pair in pairs]
    rows = [
        summed_up(each, outcomes[k], price_per_worker_hour, price_per_server_hour)
        for k, each in enumerate(prepared)
    ]
    setup = setup_line(graph, network, rows[0])
    return Predictions(rows, title=f"{graph.model}: throughput", setup=setup, caveat=graph.caveat)


def _on_threads(tasks: Sequence[tuple[Prepared, int]], progress: Progress | None) -> list[Outcome]:
    """Run on all cores: kernels hold no lock, so threads do; the longest run first."""
    end, said = threading.Event(), _RunProgress(tasks)
    longest_first = sorted(range(len(tasks)), key=lambda k: -tasks[k][0].network.num_workers)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = {
            k: pool.submit(ended_by, end, partial(run, *tasks[k], said.watches[k])) for k in longest_first
        }
        numbers = {future: k for k, future in futures.items()}
        left = set(numbers)
        try:
            while left:
                done, left = wait(left, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    said.ended(numbers[future], future.result())
                if progress is not None:
                    progress(*said.report())
        except BaseException:
            # Nothing else reaches a kernel that runs; the pool waits for it.
            end.set()
            for future in left:
                future.cancel()
            raise
    return [futures[k].result() for k in range(len(tasks))]


class _RunProgress:
    """The progress of ``tasks``; ``watches`` (2,) of each: steps complete and in all, of its present run.

    A run that is not steady yet begins again with more steps. Nothing says beforehand whether one will, so
    that the part done stands still then; it never falls.
    """

    def __init__(self, tasks: Sequence[tuple[Prepared, int]]) -> None:
        self.watches = [np.array([0, _steps(prepared)]) for prepared, _ in tasks]
        self._tasks = tasks
        self._work = np.array([each.network.num_workers * each.request.steps for each, _ in tasks])
        self._ended = np.zeros(len(tasks), bool)
        self._most = 0.0

    def ended(self, task: int, outcome: Outcome) -> None:
        """``task`` has come to its end: a line for the log, as rows are printed when all are there."""
        self._ended[task] = True
        prepared, seed = self._tasks[task]
        said = f"seed {seed}, {rate_text(outcome.throughput)}"
        done = f"{self._ended.sum()} of {counted(len(self._ended), 'run')} done"
        servers = prepared.network.num_servers if prepared.plan.architecture == "ps" else 0
        logger.info("%s, %s; %s", machines_text(prepared.network.num_workers, servers), said, done)

    def report(self) -> tuple[int, int]:
        """The steps done, and in all, as if no run began again."""
        parts = [done / of for done, of in self.watches]
        self._most = max(self._most, float(np.where(self._ended, 1.0, parts) @ self._work))
        return int(self._most), int(self._work.sum())


def _steps(prepared: Prepared) -> int:
    """The number of steps that a run reports as it goes."""
    return prepared.request.steps * prepared.ends_a_step


def _run_copy(prepared: Prepared, seed: int) -> Outcome:
    """Run in a Ray worker, whose arrays are read-only views that kernels would be compiled for anew."""
    return run(copy.deepcopy(prepared), seed)
