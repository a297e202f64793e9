"""One rank's part in measuring a network: send, unpack, reduce, by the clock.

Every kind of sample is taken once in each repeat, over all of its sizes, so that a machine that slows down
slows all of them alike. Before each sample all ranks meet in a reduction; each is timed by one rank's
clock. A repeat before the first is not counted: after it connections, memory and threads are there.

Between GPUs, over NCCL, tensors are theirs and so is the clock; what ranks agree on goes over gloo.

The repeat before the first also tells how many of them the time is enough for: a link can be so slow that all
that were asked for are not.

A rate-limited link that was idle passes a burst at once, a token bucket's depth: what is timed then says more
of the bucket than of the rate. So a long message, or reduction, goes ahead of what is timed and spends it.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import torch.distributed as dist

from hocket.network.file import MeasuredPoint
from hocket.profiler._exchange_clock import CudaClock, ExchangeClock, HostClock
from hocket.profiler._ranks import RankRequest
from hocket.profiler._share_exchanges import AT_ONCE, SHARE_KINDS, ShareBuffers

LEAD_BYTES = 1_000_000  # several times what a lab's link passes at once when it was idle
ROW_BYTES = 4_000_000  # messages in a row, at least; more where they are gone too soon
_LONGEST_NAME = 256  # bytes of a host's name
# Seconds of a row: long beside the waking of a thread that has no processor at once. One that wakes
# late sees a row's beginning and its end together, and times next to nothing.
_ROW_S = 0.02
_PROBES = 5
_MOST_ROW_BYTES = 128_000_000
_MOST_IN_A_ROW = 1000
_SPENT = 0.5  # of the time that is left, for the repeats: they may take longer than the one before them
_IN_A_ROW = 4  # one after the other in a sample: what the ranks are apart at its ends spreads over them


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A measuring task: sizes in bytes, multiples of 4.

    ``shared_bytes``: of each of 1 to ``concurrent`` reductions at once.
    """

    transfer_bytes: list[int]
    reduced_bytes: list[int]
    shared_bytes: int
    concurrent: int
    repeats: int


class ExchangeRequest(RankRequest, frozen=True, kw_only=True):
    """One rank's orders to measure; ``gpu``: the number of the one whose exchanges over NCCL are timed."""

    task: Task
    gpu: int | None = None


class MeasuredExchanges(msgspec.Struct, frozen=True, kw_only=True):
    """Lower quartiles over so many repeats, as points to fit, and the machines that took part."""

    transfer: list[MeasuredPoint]
    parse: list[MeasuredPoint]
    allreduce: list[MeasuredPoint]
    contention: list[MeasuredPoint]
    gather: list[MeasuredPoint]
    scatter: list[MeasuredPoint]
    exchange: list[MeasuredPoint]
    repeats: int
    hosts: list[str]
    torch: str


def main() -> None:
    """Serve the request in the first argument; ends with status 0, or 1 and a line in RANK.failed."""
    request = msgspec.json.decode(sys.argv[1], type=ExchangeRequest)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    folder = Path(request.folder)
    try:
        dist.init_process_group(
            "gloo" if request.gpu is None else "cpu:gloo,cuda:nccl",
            init_method=request.init_method,
            rank=request.rank,
            world_size=request.workers,
            timeout=timedelta(seconds=request.timeout_s),
        )
        clock = HostClock() if request.gpu is None else CudaClock(torch.device("cuda", request.gpu))
        exchange = TimedExchange(request.task, request.deadline_s, clock)
        (folder / f"{request.rank}.joined").touch()
        measured = exchange.measure()
        if request.rank == 0:
            (folder / "0.json").write_bytes(msgspec.json.encode(measured))
        dist.destroy_process_group()
    except Exception as error:
        (folder / f"{request.rank}.failed").write_text(f"{type(error).__name__}: {error}".partition("\n")[0])
        # Threads of the process group may still wait for a rank that is gone.
        os._exit(1)


def leave_with_parent() -> None:
    """End this process when the one that started it is gone: nobody else would, and nobody waits for it.

    Standard input is a pipe that nothing is ever written to; it closes with the process at its other end.
    """
    os.read(sys.stdin.fileno(), 1)  # unbuffered: a buffer's lock would be held while the interpreter ends
    os._exit(1)


def host_names() -> list[str]:
    """The machines that ranks of the default group run on, each once, sorted; all ranks call this."""
    name = socket.gethostname().encode()[:_LONGEST_NAME]
    mine = torch.tensor(list(name.ljust(_LONGEST_NAME, b"\0")), dtype=torch.uint8)
    names = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(names, mine)
    return sorted({bytes(each.tolist()).rstrip(b"\0").decode(errors="replace") for each in names})


class TimedExchange:
    """The buffers, the groups and the samples of this rank; a sample is worth something on rank 0 only.

    ``clock``: what times are by; the tensors that travel are on its device.
    """

    def __init__(self, task: Task, deadline_s: float, clock: ExchangeClock) -> None:
        self._clock = clock
        self._task = task
        self._deadline_s = deadline_s
        self._rank = dist.get_rank()
        largest = max(task.transfer_bytes)
        device = clock.device
        self._lead = torch.zeros(LEAD_BYTES // 4, device=device)
        self._row_s = torch.zeros(1, dtype=torch.float64)
        self._row_bytes = ROW_BYTES
        self._message = torch.zeros(largest, dtype=torch.uint8, device=device)
        self._received = bytearray(largest)
        self._parameter = torch.zeros(largest // 4, device=device)
        # Zeros stay zeros however often they are summed.
        self._gradients = torch.zeros(max(task.reduced_bytes) // 4, device=device)
        self._shares = ShareBuffers(max(task.reduced_bytes), device)
        self._shared = [torch.zeros(task.shared_bytes // 4, device=device) for _ in range(task.concurrent)]
        self._meeting = torch.zeros(1, device=device)
        self._samples: dict[tuple[str, int, int], list[float]] = defaultdict(list)
        self._groups: list[Any] = [dist.new_group() for _ in range(task.concurrent)]

    def measure(self) -> MeasuredExchanges:
        """Take every sample as often as was asked for and the time allows; the quartiles of each."""
        began_s = time.monotonic()
        self._take_all()
        taken_s = time.monotonic() - began_s
        self._row_bytes = self._agreed(self._enough_row_bytes())
        repeats = self._agreed(
            repeats_within(self._task.repeats, taken_s, self._deadline_s - time.monotonic())
        )
        self._samples.clear()
        for _ in range(repeats):
            self._take_all()
        return MeasuredExchanges(
            # A row is as often timed too short, its beginning being seen late, as too long.
            transfer=self._points("transfer", quantile=0.5),
            parse=self._points("parse"),
            allreduce=self._points("allreduce"),
            contention=self._points("contention"),
            gather=self._points("gather"),
            scatter=self._points("scatter"),
            exchange=self._points("exchange"),
            repeats=repeats,
            hosts=host_names(),
            torch=str(torch.__version__),
        )

    def _enough_row_bytes(self) -> int:
        """Bytes of a row that takes long enough, as rank 0 is told."""
        size = min(ROW_BYTES, max(self._task.transfer_bytes))
        # Of several: one that was seen late at an end says too much or too little.
        message_s = float(np.median([self._message_s(size) for _ in range(_PROBES)]))
        return row_bytes(size, message_s)

    def _agreed(self, number: int) -> int:
        """Rank 0's number, on all ranks."""
        agreed = torch.tensor([number])
        dist.broadcast(agreed, 0)
        return int(agreed)

    def _take_all(self) -> None:
        task = self._task
        for size in task.transfer_bytes:
            self._take("transfer", size, 1, self._message_s(size))
            self._take("parse", size, 1, self._parse_s(size))
        for size in task.reduced_bytes:
            gradients = self._gradients[: size // 4]
            self._take("allreduce", size, 1, self._collective_s(partial(dist.all_reduce, gradients)))
        for size in reversed(task.reduced_bytes[::-2]):  # every other one: time is for all-reduces first
            for kind in SHARE_KINDS:
                collective = self._shares.collective(kind, size)
                taken_s = self._collective_s(collective, _IN_A_ROW // AT_ONCE[kind])
                self._take(kind, self._shares.size_bytes(size), 1, taken_s / AT_ONCE[kind])
        for count in range(1, task.concurrent + 1):
            self._take("contention", task.shared_bytes, count, self._together_s(count))

    def _take(self, kind: str, size: int, count: int, taken_s: float) -> None:
        self._samples[kind, size, count].append(taken_s)

    def _points(self, kind: str, quantile: float = 0.25) -> list[MeasuredPoint]:
        """The points of ``kind`` in the order in which they are taken.

        A lower quartile is close to the undisturbed time and, unlike the minimum, not the lower the more
        repeats there are.
        """
        return [
            MeasuredPoint(size_bytes=size, concurrent=count, seconds=float(np.quantile(taken_s, quantile)))
            for (of, size, count), taken_s in self._samples.items()
            if of == kind
        ]

    def _meet(self) -> None:
        dist.all_reduce(self._meeting)

    def _message_s(self, size: int) -> float:
        """Seconds that a message from rank 0 takes behind others, on rank 1's clock, which tells rank 0.

        A long message goes first, then a row of this size at once: from the end of the long one to that of
        the row. All receives are posted before anything is sent.
        """
        messages = [self._message[:size]] * messages_in_a_row(size, self._row_bytes)
        pending: list[Any] = []
        if self._rank == 0:
            pending = [dist.irecv(self._row_s, 1)]
        elif self._rank == 1:
            pending = [dist.irecv(tensor, 0) for tensor in (self._lead, *messages)]
        self._meet()
        if self._rank == 0:
            for tensor in (self._lead, *messages):
                dist.send(tensor, 1)
            pending[0].wait()
        elif self._rank == 1:
            ends = []
            for receive in pending:
                receive.wait()
                ends.append(self._clock.now())
            self._row_s[0] = self._clock.seconds(ends[0], ends[-1])
            dist.send(self._row_s, 0)
        return float(self._row_s[0]) / len(messages)

    def _parse_s(self, size: int) -> float:
        """Rank 0 makes a parameter of a received buffer; the others wait at the next meeting."""
        self._meet()
        if self._rank != 0:
            return 0.0
        parameter = self._parameter[: size // 4]
        start = self._clock.now()
        parameter.copy_(torch.frombuffer(self._received, dtype=torch.float32, count=size // 4))
        return self._clock.seconds(start, self._clock.now())

    def _collective_s(self, collective: Callable[[], object], in_a_row: int = _IN_A_ROW) -> float:
        """One ``collective`` among several in a row; one before them brings the ranks together."""
        dist.all_reduce(self._lead)
        collective()
        start = self._clock.now()
        for _ in range(in_a_row):
            collective()
        return self._clock.seconds(start, self._clock.now()) / in_a_row

    def _together_s(self, count: int) -> float:
        """``count`` AllReduces on as many process groups: all started, then all waited for."""
        dist.all_reduce(self._lead)
        self._meet()
        start = self._clock.now()
        works = [
            dist.all_reduce(gradients, group=group, async_op=True)
            for gradients, group in zip(self._shared[:count], self._groups[:count], strict=True)
        ]
        for work in works:
            work.wait()
        return self._clock.seconds(start, self._clock.now())


def messages_in_a_row(size: int, total_bytes: int) -> int:
    """The number of messages of ``size`` bytes that are timed in a row of ``total_bytes``."""
    return min(_MOST_IN_A_ROW, max(1, total_bytes // size))


def sent_bytes(task: Task, workers: int) -> float:
    """Bytes that a worker sends at least for every sample once, all collectives going around a ring."""
    gathered = (workers - 1) / workers  # of a collective's bytes; an all-reduce scatters and gathers
    reduced = 2 * gathered
    rows = sum(LEAD_BYTES + messages_in_a_row(size, ROW_BYTES) * size for size in task.transfer_bytes)
    alone = sum(LEAD_BYTES + (1 + _IN_A_ROW) * size for size in task.reduced_bytes)
    shares = task.reduced_bytes[::-2]
    exchanged = sum((AT_ONCE[kind] + _IN_A_ROW) * size for size in shares for kind in SHARE_KINDS)
    together = sum(LEAD_BYTES + count * task.shared_bytes for count in range(1, task.concurrent + 1))
    leads = len(SHARE_KINDS) * len(shares) * LEAD_BYTES
    return rows + reduced * (alone + together + leads) + gathered * exchanged


def row_bytes(size: int, message_s: float) -> int:
    """Bytes to send in a row where a message of ``size`` bytes took ``message_s`` seconds."""
    if message_s <= 0:
        return _MOST_ROW_BYTES
    return min(_MOST_ROW_BYTES, max(ROW_BYTES, int(size * _ROW_S / message_s)))


def repeats_within(asked: int, one_s: float, left_s: float) -> int:
    """The repeats to make of those ``asked`` for, where one takes ``one_s`` and ``left_s`` are left."""
    return asked if asked * one_s <= _SPENT * left_s else max(1, int(_SPENT * left_s / one_s))
