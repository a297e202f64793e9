"""One rank of ``bench train``: every variant of every model, in turn, by the clock.

All variants live in the same processes and take turns in blocks of steps; a round is a block of each, and
each round begins with another variant. So a machine that slows down, or a network that others use too, slows
all of them alike, and figures of one round can be compared. A block begins with steps that are not timed:
what runs on into the next step, as hocket's transfers do, does so before the first timed step as after the
last, and training has thousands of steps for one start and one end. A block is timed up to three times as
long as other virtual machines have more than a tenth of the processors' time; what they had least of counts,
whichever variant it is. So is, after the rounds, a block whose training thread used more processor time
than in another round, for the same work, by more than a twentieth of the block; what used least counts. A
time is that of the slowest rank.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np
import torch
import torch.distributed as dist

from hocket.bench.host_noise import least_stolen, slowed, stolen_s
from hocket.bench.rank_process import run_rank
from hocket.bench.training.batch_sizes import choose_batch_sizes
from hocket.bench.training.measured_bound import critical_cycle_s, simulated_s
from hocket.bench.training.timed_models import load
from hocket.bench.training.training_request import (
    BUCKETS_MB,
    BUSY,
    COMPUTE,
    DDP_COMPILED,
    DEFAULT_BUCKET_MB,
    HOCKET,
    HOCKET_COMPILED,
    NETWORK,
    TimedCell,
    TimedCells,
    TrainingRequest,
    ddp_name,
)
from hocket.bench.training.variants import Copy, HocketCopy, Variant, all_reduce, ddp, gradient_bytes, traffic
from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.clipped_step import clipped
from hocket.network import Network
from hocket.profiler import StepSetup
from hocket.profiler._exchange import host_names

_WARM_UP = 3  # DDP rebuilds its buckets after its first step
_LEAD_STEPS = 3
_SIZING_STEPS = 4
_MOST_STOLEN, _MOST_SLOWED = 0.1, 0.05
_AGAIN = 2  # times that slow blocks are timed again


def main() -> None:
    """Serve the request in the first argument; rank 0 leaves answer.json in the folder in the second."""
    request, folder = msgspec.json.decode(sys.argv[1], type=TrainingRequest), Path(sys.argv[2])
    run_rank(partial(_serve, request, folder), folder)


def _serve(request: TrainingRequest, folder: Path) -> None:
    torch.set_num_threads(request.threads)
    # Long training on one batch makes gradients vanish, and arithmetic next to zero is slow.
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", timeout=timedelta(seconds=request.timeout_s))
    dist.barrier()  # a rank whose model fails at once, as all do, is not to be missed by who still connects
    cells = _TimedRank(request).measure()
    hosts = host_names()
    if dist.get_rank() == 0:
        answer = TimedCells(
            cells=cells,
            workers=dist.get_world_size(),
            hosts=hosts,
            torch=str(torch.__version__),
        )
        (folder / "answer.json").write_bytes(msgspec.json.encode(answer))
    dist.destroy_process_group()


class _TimedBlock(NamedTuple):
    """Seconds of a block's step, and the share of processor time that other machines had of this one.

    ``lockstep_s``: what it would have taken if each had waited for the slowest rank's, as far as they do not.
    ``cpu_s``: the processor time of the training thread that used most, a step.
    """

    step_s: float
    stolen: float
    lockstep_s: float
    cpu_s: float


class _TimedRank:
    """This rank's part in the blocks; figures are the same on all ranks."""

    def __init__(self, request: TrainingRequest) -> None:
        self._request = request
        self._started_s = time.monotonic()

    def measure(self) -> list[TimedCell]:
        """Every model at every batch size."""
        return [
            self._cell(model, rho, batch_size)
            for model in self._request.models
            for batch_size, rho in self._batch_sizes(model).items()
        ]

    def _batch_sizes(self, model: str) -> dict[int, float | None]:
        """The batch sizes to train ``model`` at, with the rho that each is to come near."""
        request = self._request
        if request.batch_size is not None:
            return {request.batch_size: None}

        size_bytes = gradient_bytes(load(model, 1, request.seed).model)
        with _group() as group:

            def busy_s(batch_size: int) -> float:
                alone = Copy(load(model, batch_size, request.seed), clip=request.clip)
                around = partial(traffic, group, request.timeout_s)
                busy = Variant(name=BUSY, run=alone.train, around=around, alone=True)
                return self._timed(busy, _SIZING_STEPS).step_s

            network = Variant(name=NETWORK, run=all_reduce(size_bytes, group))
            network_s = self._timed(network, _SIZING_STEPS).step_s
            self._say(
                f"{model}: reducing {size_bytes / 1e6:.1f} MB takes {network_s:.4g} s; choosing batches"
            )
            chosen = choose_batch_sizes(network_s, request.rhos, busy_s)
        sizes: dict[int, float | None] = {}
        for rho, size in zip(request.rhos, chosen, strict=True):
            if size in sizes:
                self._say(f"{model}: rho {rho:g} and {sizes[size]:g} both come to batch {size}; timed once")
            sizes.setdefault(size, rho)
        return sizes

    def _cell(self, model: str, rho: float | None, batch_size: int) -> TimedCell:
        setup = load(model, batch_size, self._request.seed)
        with ExitStack() as groups:
            title = f"{model}, batch {batch_size}"
            blocks, (graph, plan, network) = self._race(title, setup, lambda: groups.enter_context(_group()))
            # Before their groups end, the models that hold on to them, in circles.
            gc.collect()
        steps_s = {name: [block.step_s for block in timed] for name, timed in blocks.items()}
        busy_s, network_s = median(steps_s[BUSY]), median(steps_s[NETWORK])
        return TimedCell(
            model=model,
            batch_size=batch_size,
            rho_target=rho,
            gradient_bytes=gradient_bytes(setup.model),
            steps_s=steps_s,
            stolen={name: [block.stolen for block in timed] for name, timed in blocks.items()},
            cpu_s={name: [block.cpu_s for block in timed] for name, timed in blocks.items()},
            lockstep_s=[block.lockstep_s for block in blocks[BUSY]],
            plan=plan.policy,
            cycle_s=critical_cycle_s(graph, network, compute_s=busy_s, network_s=network_s),
            simulated_s=simulated_s(clipped(graph) if self._request.clip else graph, plan, network),
        )

    def _race(
        self, title: str, setup: StepSetup, group: Callable[[], dist.ProcessGroup]
    ) -> tuple[dict[str, list[_TimedBlock]], tuple[StepGraph, Plan, Network]]:
        """All variants in all rounds: the block of each, and what hocket knew of the step before."""
        request = self._request
        clip = request.clip
        alone = Copy(setup, clip=clip)
        busy = partial(traffic, group(), request.timeout_s)
        variants = [
            Variant(name=COMPUTE, run=alone.train, alone=True),
            Variant(name=BUSY, run=alone.train, around=busy, alone=True),
            Variant(name=NETWORK, run=all_reduce(gradient_bytes(setup.model), group())),
            *(Variant(name=ddp_name(mb), run=ddp(setup, mb, group(), clip=clip)) for mb in BUCKETS_MB),
        ]
        if request.compile:
            compiled = ddp(setup, DEFAULT_BUCKET_MB, group(), clip=clip, compiled=True)
            variants.append(Variant(name=DDP_COMPILED, run=compiled))
        self._say(f"{title}: warming up")
        for variant in variants:
            with variant.around():
                variant.run(_WARM_UP)
        planned = HocketCopy(setup, request.plan, clip=clip)
        planned.train_until_settled()
        variants.append(Variant(name=HOCKET, run=planned.train, finish=planned.finish, end=planned.end))
        # Before the rounds: in them the runtime sees pauses between blocks, which are in no training's step.
        planned.train(max(request.steps, _WARM_UP))
        planned.finish()
        known = planned.known()
        for line in planned.handle.explain().splitlines():
            self._say(f"{title}: hocket: {line}")
        if request.compile:
            compiled_too = HocketCopy(setup, request.plan, clip=clip, compiled=True)
            compiled_too.train_until_settled()
            compiled_too.finish()
            variants.append(
                Variant(
                    name=HOCKET_COMPILED,
                    run=compiled_too.train,
                    finish=compiled_too.finish,
                    end=compiled_too.end,
                )
            )
        blocks: dict[str, list[_TimedBlock]] = {variant.name: [] for variant in variants}
        for turn in range(request.blocks):
            self._say(f"{title}: round {turn + 1} of {request.blocks}")
            first = turn % len(variants)
            for variant in (*variants[first:], *variants[:first]):
                blocks[variant.name].append(self._timed(variant, request.steps))
        for _ in range(_AGAIN):
            for variant in variants:
                self._again(title, variant, blocks[variant.name])
        # Not where this rank fails: to end may be to wait for the others, and its process is about to go.
        for variant in variants:
            variant.end()
        return blocks, known

    def _again(self, title: str, variant: Variant, timed: list[_TimedBlock]) -> None:
        """Time those of a variant's blocks again in which the machine was slower than in others."""
        slow = slowed([b.cpu_s for b in timed], [b.step_s for b in timed], _MOST_SLOWED)
        if slow:
            self._say(f"{title}: {variant.name}, {len(slow)} of {len(timed)} blocks again")
        for turn in slow:
            again = self._timed(variant, self._request.steps)
            timed[turn] = min(timed[turn], again, key=lambda block: block.cpu_s)

    def _timed(self, variant: Variant, steps: int) -> _TimedBlock:
        """A block of so many ``steps``, timed again while other machines take much of this one's time."""
        return least_stolen(
            lambda: self._timed_once(variant, steps), lambda block: block.stolen, _MOST_STOLEN
        )

    def _timed_once(self, variant: Variant, steps: int) -> _TimedBlock:
        with variant.around():
            dist.barrier()
            variant.run(_LEAD_STEPS)
            stolen_before_s, cpu_before_s = stolen_s(), time.thread_time()
            moments_s = [time.perf_counter()]
            for part in [1] * steps if variant.alone else [steps]:
                variant.run(part)
                moments_s.append(time.perf_counter())
            block_s, cpu_s = moments_s[-1] - moments_s[0], time.thread_time() - cpu_before_s
            stolen = (stolen_s() - stolen_before_s) / block_s
            variant.finish()
            # All ranks have ended their blocks before any of them leaves what is around them.
            slowest_s, stolen, cpu_s, passed_s, *parts_s = self._most(
                *(block_s, stolen, cpu_s, time.monotonic() - self._started_s), *np.diff(moments_s)
            )
        if passed_s > self._request.timeout_s:
            raise HocketError(
                f"timing took longer than {self._request.timeout_s:g} s; raise --timeout, or ask for fewer"
                " models, rhos, steps or blocks"
            )
        return _TimedBlock(slowest_s / steps, stolen, sum(parts_s) / steps, cpu_s / steps)

    def _most(self, *values: float) -> list[float]:
        """The largest of each value over all ranks."""
        largest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        found: list[float] = largest.tolist()
        return found

    def _say(self, text: str) -> None:
        if dist.get_rank() == 0:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def _group() -> Iterator[dist.ProcessGroup]:
    """A process group of all ranks, for one variant alone."""
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


if __name__ == "__main__":
    main()
