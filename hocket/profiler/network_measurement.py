"""A network measured between real processes: what a transfer, a message and an AllReduce cost.

Processes exchange messages over torch.distributed's gloo backend, and lines are fitted to the times:

    transfer     one of several in a row         t(d) = startup + 8 d / bandwidth
    parse        a received buffer unpacked      t(d) = parse_s + parse_s_per_byte d
    allreduce    among all workers               t(d) = a + b d           (Caramel section 4.2)
    gather, scatter, exchange                    t(d) = a + b d           an all-gather, a reduce-scatter, one
                                                                          of two all-to-alls at once; d: all
                                                                          shares together
    contention   k reductions of M at once       T = a + k b M + (k-1) eta M    (Wang et al. 2020, Figure 2)

Sizes go up by a factor of 4. :mod:`hocket.network.fit` says how lines are fitted, and
:mod:`hocket.profiler._exchange` what exactly the clock goes around.

Differs from the papers
-----------------------
Caramel fits a line through the times of 64 B and 4 MB. Two points fit any line; with more of them the
residual says whether there is a line at all.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from hocket.errors import HocketError
from hocket.network.file import AllReduce, Fit, Fits, Halves, Line, MeasurementHost, NetworkFile
from hocket.network.fit import fit_contention, fit_line
from hocket.profiler._exchange import ExchangeRequest, MeasuredExchanges, Task, sent_bytes
from hocket.profiler._ranks import RankWork, run_ranks

# No line meets all sizes: small ones are quicker than it on links that were idle. It is to be nearest where
# most of the time goes.
_POWER = 0.5
MEASURING = RankWork("hocket.profiler._exchange", "measuring", "lower --largest or --repeats")
_LAUNCHER = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Launched(NamedTuple):
    """This process's place among those that a launcher such as torchrun started."""

    rank: int
    workers: int


def launched() -> Launched | None:
    """The rank and world size that torchrun set in the environment; None where nothing was launched.

    Raises
    ------
    HocketError
        When the environment says only half of it, or nonsense.
    """
    given = [name for name in _LAUNCHER if name in os.environ]
    if "RANK" not in given and "WORLD_SIZE" not in given:
        return None
    missing = [name for name in _LAUNCHER if name not in given]
    if missing:
        raise HocketError(f"{given[0]} is set but {missing[0]} is not; start with torchrun, or unset it")
    values = [os.environ[name] for name in ("RANK", "WORLD_SIZE")]
    if not all(value.isdecimal() for value in values) or not int(values[0]) < int(values[1]):
        raise HocketError(f"RANK {values[0]} of WORLD_SIZE {values[1]} is no place; start with torchrun")
    return Launched(int(values[0]), int(values[1]))


def measure_network(
    *,
    workers: int | None = None,
    largest_bytes: int = 32_000_000,
    repeats: int = 10,
    concurrent: int = 8,
    timeout_s: float = 120.0,
    backend: Literal["gloo", "nccl"] = "gloo",
    begins: Callable[[float], object] = lambda sent_bytes: None,
) -> NetworkFile | None:
    """Measure the network between ``workers`` processes here, or between those that torchrun started.

    Transfers go up to ``largest_bytes``, reductions and other collectives to half of it, and concurrent ones
    have an eighth; each time is the lower quartile of ``repeats``, of transfers the median. On a link so slow
    that they would take more than half of ``timeout_s``, there are fewer repeats: ``host.repeats`` says how
    many. The processes have ended when this returns or raises. ``backend``: "nccl" measures between GPUs, one
    for each of torchrun's processes, by their own clocks. ``begins`` is called once with the bytes that each
    worker sends at least for each repeat, and for one before them.

    Returns
    -------
    The network, on rank 0; None on torchrun's other ranks.

    Raises
    ------
    HocketError
        When the request makes no sense, a process fails, or ``timeout_s`` is over.
    """
    place = launched()
    if place is not None and workers not in (None, place.workers):
        raise HocketError(f"torchrun started {place.workers} workers, not {workers}; leave --workers out")
    num_workers = place.workers if place is not None else 2 if workers is None else workers
    _check(num_workers, place is None, largest_bytes, repeats, concurrent, timeout_s)
    gpu = None if backend == "gloo" else _own_gpu(place)
    task = _task(largest_bytes, repeats, concurrent)
    begins(sent_bytes(task, num_workers))
    deadline_s = time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix="hocket-") as folder:
        requests = [
            ExchangeRequest(
                rank=rank,
                workers=num_workers,
                init_method="env://" if place is not None else f"file://{folder}/meeting",
                timeout_s=timeout_s,
                deadline_s=deadline_s,
                folder=folder,
                task=task,
                gpu=gpu,
            )
            for rank in (range(num_workers) if place is None else [place.rank])
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if place is None:
            environment["GLOO_SOCKET_IFNAME"] = "lo"  # whatever this machine's name resolves to
        answer = run_ranks(MEASURING, requests, environment, deadline_s)
    if answer is None:
        return None
    measured = msgspec.json.decode(answer, type=MeasuredExchanges)
    where = "loopback" if place is None else ", ".join(measured.hosts)
    return _network(measured, num_workers, where, backend)


def _check(
    workers: int, local: bool, largest_bytes: int, repeats: int, concurrent: int, timeout_s: float
) -> None:
    if workers < 2:
        raise HocketError(f"between {workers} workers there is no network; give at least 2")
    if local and workers > 64:
        raise HocketError(f"{workers} processes on one machine measure its scheduler; give up to 64")
    # Below, startups hide what a byte costs; above, the buffers fill memories.
    if not 1_000_000 <= largest_bytes <= 4_000_000_000:
        raise HocketError(f"largest message of {largest_bytes} B is not between 1MB and 4GB; give e.g. 32MB")
    for value, what, most in ((repeats, "repeats", 10_000), (concurrent, "concurrent reductions", 64)):
        if not 1 <= value <= most:
            raise HocketError(f"{value} {what} are not between 1 and {most}")
    if not 1 <= timeout_s <= 86_400:
        raise HocketError(f"timeout of {timeout_s:g} s is not between 1 and 86400")


def _task(largest_bytes: int, repeats: int, concurrent: int) -> Task:
    whole = largest_bytes // 32 * 32  # halves and eighths of it are whole floats
    return Task(
        transfer_bytes=_sizes(1000, whole),
        reduced_bytes=_sizes(64, whole // 2),
        shared_bytes=whole // 8,
        concurrent=concurrent,
        repeats=repeats,
    )


def _sizes(first: int, last: int) -> list[int]:
    sizes = [first]
    while sizes[-1] * 4 < last:
        sizes.append(sizes[-1] * 4)
    return [*sizes, last]


def _own_gpu(place: Launched | None) -> int:
    """The number of this process's GPU, as torchrun has numbered the processes of a machine."""
    if place is None:
        raise HocketError(
            "NCCL is measured between processes with a GPU each; start them with torchrun --nproc-per-node N"
            " -m hocket network measure --backend nccl"
        )
    import torch  # an extra, and seconds to import

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpu = int(os.environ.get("LOCAL_RANK", "0"))
    if gpu >= gpus:
        found = f"{gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "no GPU"
        raise HocketError(
            f"torch finds {found} here, and process {gpu} of this machine needs its own; leave --backend nccl"
            " out, or start fewer processes"
        )
    return gpu


def _network(measured: MeasuredExchanges, workers: int, where: str, backend: str) -> NetworkFile:
    transfer, allreduce = (
        fit_line(points, power=_POWER) for points in (measured.transfer, measured.allreduce)
    )
    parse = fit_line(measured.parse)
    contention = fit_contention(measured.contention, allreduce.a_s)
    gather, scatter, exchange = (
        fit_line(points, power=_POWER) for points in (measured.gather, measured.scatter, measured.exchange)
    )
    if transfer.b_s_per_byte < 8e-18:  # above 1e18 bit/s, which no network file holds
        raise HocketError("more bytes took no more time; raise --largest or --repeats")
    return NetworkFile(
        bandwidth_bps=8 / transfer.b_s_per_byte,
        startup_s=transfer.a_s,
        parse_s_per_byte=parse.b_s_per_byte,
        parse_s=parse.a_s,
        allreduce=AllReduce(
            workers=workers,
            a_s=allreduce.a_s,
            b_s_per_byte=allreduce.b_s_per_byte,
            eta_s_per_byte=contention.eta_s_per_byte,
            halves=Halves(gather=_line(gather), scatter=_line(scatter), exchange=_line(exchange)),
        ),
        fits=Fits(
            transfer=transfer,
            parse=parse,
            allreduce=allreduce,
            contention=contention,
            gather=gather,
            scatter=scatter,
            exchange=exchange,
        ),
        host=MeasurementHost(
            torch=measured.torch, backend=backend, workers=workers, where=where, repeats=measured.repeats
        ),
    )


def _line(fit: Fit) -> Line:
    return Line(a_s=fit.a_s, b_s_per_byte=fit.b_s_per_byte)
